package measuring

// bench link: latency and bandwidth between the hosts of ranks that mpirun, mpiexec or srun has
// started.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"spmoe/bench/exchange"
	"spmoe/collective"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
)

func (f *benchFlags) link(ctx context.Context, env cli.Env) error {
	if err := f.ranks.Check(env); err != nil {
		return err
	}
	if env.Cluster == nil {
		return errors.New("bench link measures the network between hosts: start it on two or more hosts with mpirun, mpiexec or srun, and a launcher built with -tags mpi")
	}
	table, lines, done, err := f.outputs(env)
	if err != nil {
		return err
	}
	err = f.ranks.Run(ctx, env, running.Resources{Heap: exchangeHeap}, nil, func(world spmd.World) error {
		err := world.Run(func(c *collective.Comm) error {
			wrong, failed := 0, error(nil)
			if c.Rank() == 0 {
				fmt.Fprintf(table, "%-36s %11s %11s %11s %9s\n", "operation", "bytes", "median", "quartiles", "GB/s")
			}
			err := exchange.Link(c, f.quick, func(r exchange.Result) {
				if r.Unit == "us" && r.Bytes > 0 {
					fmt.Fprintf(table, "%-36s %11d %8.0f us %5.0f-%5.0f %9.2f\n", r.Name, r.Bytes, r.Value, r.Quartiles[0], r.Quartiles[1], r.AlgBW)
				} else {
					fmt.Fprintf(table, "%-36s %11s %8.3f %s\n", r.Name, "", r.Value, r.Unit)
				}
				wrong += r.Wrong
				failed = errors.Join(failed, json.NewEncoder(lines).Encode(r))
			})
			if err == nil && wrong > 0 {
				err = fmt.Errorf("the exchange gave %d wrong results", wrong)
			}
			return errors.Join(err, failed)
		})
		if err != nil {
			return cli.Fail(err, cli.ExitFailed)
		}
		return nil
	})
	return errors.Join(err, done())
}
