package measuring

// bench exchange: the collectives and the token exchange between ranks.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"spmoe/bench/exchange"
	"spmoe/collective"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
	"spmoe/tensor/cpu"
)

// exchangeHeap is the shared memory per rank that the benchmark may use, in bytes.
const exchangeHeap = 8 << 30

func (f *benchFlags) exchange(ctx context.Context, env cli.Env) error {
	if err := f.ranks.Check(env); err != nil {
		return err
	}
	match, err := f.pattern()
	if err != nil {
		return err
	}
	options := exchange.Options{Quick: f.quick, Match: match}
	table, lines, done, err := f.outputs(env.LeaderOnly())
	if err != nil {
		return err
	}
	err = f.ranks.Run(ctx, env, running.Resources{Heap: exchangeHeap}, nil, func(world spmd.World) error {
		err := world.Run(func(c *collective.Comm) error {
			if c.Rank() != 0 {
				return exchange.Run(c, options, func(exchange.Result) {})
			}
			fmt.Fprintf(table, "%d ranks (--ranks %s) on %d cores of %s; medians of the slowest rank\n", c.Size(), f.ranks.Kind, world.Cores(), cpu.Model())
			fmt.Fprintf(table, "%-36s %11s %11s %11s %9s %9s %7s %6s\n", "operation", "bytes", "time", "quartiles", "algbw", "busbw", "share", "wrong")
			wrong, failed := 0, error(nil)
			if err := exchange.Run(c, options, func(r exchange.Result) {
				printExchange(table, r)
				wrong += r.Wrong
				failed = errors.Join(failed, json.NewEncoder(lines).Encode(r))
			}); err != nil {
				return err
			}
			fmt.Fprintf(table, "algbw, busbw: GB/s as nccl-tests defines them; share: of the rate at which all ranks together copy memory\n")
			fmt.Fprintf(table, "# out of bounds values: %d\n", wrong)
			if wrong > 0 {
				return errors.New("the exchange gave wrong results")
			}
			return failed
		})
		if err != nil {
			return cli.Fail(err, cli.ExitFailed)
		}
		return nil
	})
	return errors.Join(err, done())
}

func printExchange(w io.Writer, r exchange.Result) {
	if r.Unit != "us" {
		fmt.Fprintf(w, "%-36s %11s %9.2f %s\n", r.Name, "", r.Value, r.Unit)
		return
	}
	fmt.Fprintf(w, "%-36s %11d %8.1f us %5.0f-%5.0f %9.2f %9.2f %6.1f%% %6d\n", r.Name, r.Bytes, r.Value, r.Quartiles[0], r.Quartiles[1], r.AlgBW, r.BusBW, 100*r.Share, r.Wrong)
}
