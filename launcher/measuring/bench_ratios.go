package measuring

// bench ratios: the time ratios that project --ratios reads. They are facts about this machine.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"spmoe/bench"
	"spmoe/bench/exchange"
	"spmoe/bench/ratios"
	"spmoe/collective"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

func (f *benchFlags) ratios(ctx context.Context, env cli.Env) error {
	if err := f.ranks.Check(env); err != nil {
		return err
	}
	cfg, err := f.ratiosConfig()
	if err != nil {
		return err
	}
	table, lines, done, err := f.outputs(env.LeaderOnly())
	if err != nil {
		return err
	}
	err = f.ranks.Run(ctx, env, running.Resources{Heap: exchangeHeap}, nil, func(world spmd.World) error {
		err := world.Run(func(c *collective.Comm) error {
			file, err := measureRatios(ctx, c, cfg, f.quick)
			if err != nil || c.Rank() != 0 {
				return err
			}
			file.Machine = thisMachine(world.Cores())
			printRatios(table, file)
			encoder := json.NewEncoder(lines)
			encoder.SetIndent("", " ")
			return encoder.Encode(file)
		})
		if err != nil {
			return cli.Fail(err, cli.ExitFailed)
		}
		return nil
	})
	return errors.Join(err, done())
}

// ratiosConfig returns the configuration of the model whose shapes are measured.
func (f *benchFlags) ratiosConfig() (config.Config, error) {
	cfg, err := cli.Resolve(BenchDefaults, "", nil, *f.given)
	if err != nil {
		return cfg, err
	}
	cfg.Precision = "bf16"
	if err := cfg.Validate(f.ranks.Count); err != nil {
		return cfg, err
	}
	if cfg.Model.MoELayers() == 0 {
		return cfg, errors.New("the model has no experts: give another --flavor or fewer model.dense_layers")
	}
	return cfg, nil
}

// measureRatios runs on every rank. Only rank 0 returns the complete file.
func measureRatios(ctx context.Context, c *collective.Comm, cfg config.Config, quick bool) (f ratios.File, err error) {
	m := cfg.Model
	shape := ratioShape(cfg)
	tokens := cfg.Batch / c.Size() * cfg.Seq
	f = ratios.File{Schema: ratios.Schema, Origin: "bench", Model: shape, Ranks: c.Size()}
	over, err := exchange.OneSidedOverStandard(c, tokens, m.Dim, m.TopK, m.Experts, quick)
	if err != nil {
		return f, err
	}
	f.Exchange = []ratios.Exchange{{Tokens: tokens, Hidden: m.Dim, TopK: m.TopK, Ranks: c.Size(), Time: over}}
	if err := c.Barrier(); err != nil {
		return f, err
	}
	if c.Rank() == 0 { // on one core, while the others wait
		err = bench.MXFP8OverBF16(ctx, quick, layersOf(m, tokens, c.Size()), func(l bench.Layer, shape string, ratio float64) {
			f.Products = append(f.Products, ratios.Product{Name: l.Name, Shape: shape, Time: ratio})
		})
	}
	return f, errors.Join(err, c.Barrier())
}

// layersOf returns the matrix products of attention and routed experts at the size of one rank's
// share of the tokens. Quantized recipes run these products in MXFP8.
func layersOf(m moe.Config, tokens, ranks int) (all []bench.Layer) {
	for _, l := range m.Linears() {
		switch layer := (bench.Layer{Name: l.Name, Rows: tokens, Outputs: l.Out, Sum: l.In}); {
		case l.MTP:
		case l.Part == moe.Routed:
			layer.Groups, layer.Rows = l.Held/ranks, max(1, tokens*ranks*l.Met/l.Held)
			all = append(all, layer)
		case l.Part == moe.Projections:
			all = append(all, layer)
		}
	}
	return all
}

// printRatios prints a file.
func printRatios(w io.Writer, f ratios.File) {
	fmt.Fprintf(w, "%s on %d ranks: %d experts, top-%d; %s, %d cores, tier %s\n", f.Model.Name, f.Ranks, f.Model.Experts, f.Model.TopK, f.Machine.CPU, f.Machine.Cores, f.Machine.Tier)
	fmt.Fprintf(w, "ratios of times, which hold for this machine only:\n")
	for _, p := range f.Products {
		fmt.Fprintf(w, "  MXFP8 over BF16, %-16s %-20s %.2f\n", p.Name, p.Shape, p.Time)
	}
	for _, x := range f.Exchange {
		fmt.Fprintf(w, "  one-sided over standard exchange, %d x %d, top-%d: %.2f\n", x.Tokens, x.Hidden, x.TopK, x.Time)
	}
}
