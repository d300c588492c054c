package measuring

// bench train: training steps in several precisions, which take turns. Ranks are goroutines, which
// compute as fast as processes.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"spmoe/bench"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/tensor/cpu"
)

// trainRounds is the amount of measurement. In each round every precision runs its warm-up steps
// and then its measured steps.
type trainRounds struct{ rounds, warm, steps int }

// BenchDefaults returns the default configuration of a measured step.
func BenchDefaults(flavor string, _ int) (config.Config, error) {
	cfg, err := config.Default(flavor)
	if err == nil && flavor != cli.DefaultFlavor {
		cfg.Seq, cfg.Batch, cfg.MicroBatch = 512, 8, 0
	}
	cfg.Precision = "bf16,mxfp8"
	return cfg, err
}

// Samples are the measurements of one precision.
type Samples struct {
	precision string
	Rates     []float64 // tokens/s per block of steps
	Mfus      []float64 // MFU per block
	over      []float64 // tokens/s relative to the first precision, per round
	last      trainer.Benchmark
}

// train measures all precisions and prints their rates.
func (f *benchFlags) train(ctx context.Context, env cli.Env) (err error) {
	cfg, err := f.trainConfig(env)
	if err != nil {
		return err
	}
	size := trainRounds{3, 2, 4}
	if f.quick {
		size = trainRounds{1, 1, 2}
	}
	table, lines, done, err := f.outputs(env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	var all []Samples
	for _, p := range strings.Split(cfg.Precision, ",") {
		all = append(all, Samples{precision: p})
	}
	n := cfg.Model.Count()
	fmt.Fprintf(table, "%s, %s parameters (%s active), %s; steps of %s of %d tokens; %s of %s, tier %s\n", cfg.Flavor, report.Count(n.Total), report.Count(n.Active),
		report.Plural(f.ranks.Count, "rank"), report.Plural(cfg.Batch, "sequence"), cfg.Seq, report.Plural(spmd.Goroutines{N: f.ranks.Count}.Cores(), "core"), cpu.Model(), cpu.Best())
	running.PrintBuiltinText(table, cfg.Data)
	fmt.Fprintf(table, "%s of %d warm-up and %d measured steps, the precisions in turns; medians\n", report.Plural(size.rounds, "round"), size.warm, size.steps)
	for range size.rounds {
		for i := range all {
			if err := f.takeTurn(ctx, cfg, &all[i], all[0], size); err != nil {
				return err
			}
		}
	}
	printSamples(table, all)
	for _, t := range all {
		if err := f.writeJSON(lines, cfg, t, all[0].precision); err != nil {
			return err
		}
	}
	return nil
}

// trainConfig returns the configuration to measure. Its Precision is a list.
func (f *benchFlags) trainConfig(env cli.Env) (cfg config.Config, err error) {
	if err := f.ranks.Check(env); err != nil {
		return cfg, err
	}
	if cfg, err = cli.Resolve(BenchDefaults, "", nil, *f.given); err != nil {
		return cfg, err
	}
	for _, p := range strings.Split(cfg.Precision, ",") {
		one := cfg
		one.Precision = p
		if err := one.Validate(f.ranks.Count); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// takeTurn measures one precision once, and compares it with the newest samples of the first.
func (f *benchFlags) takeTurn(ctx context.Context, cfg config.Config, t *Samples, first Samples, size trainRounds) error {
	debug.FreeOSMemory() // that of the last turn would count as taken
	cfg.Precision = t.precision
	job, err := trainer.Prepare(cfg, f.ranks.Count, "", nil)
	if err != nil {
		return err
	}
	b, err := job.Benchmark(ctx, spmd.Goroutines{N: f.ranks.Count, Limits: f.ranks.Limits()}, size.warm, size.steps)
	if errors.Is(err, events.ErrInterrupted) {
		return cli.Fail(err, cli.ExitInterrupted)
	} else if err != nil {
		return cli.Fail(fmt.Errorf("%s: %w", t.precision, err), cli.ExitFailed)
	}
	// A sample covers one period of the memory guard, whose check only some steps pay for.
	rates := t.Add(b, min(max(cfg.Guard.Every, 1), size.steps))
	if base := first.Rates; t.precision != first.precision {
		t.over = append(t.over, bench.Median(rates)/bench.Median(base[len(base)-len(rates):]))
	}
	return nil
}

// Add adds the steps of one benchmark in blocks of this length, and returns each block's tokens/s.
func (t *Samples) Add(b trainer.Benchmark, block int) []float64 {
	before := len(t.Rates)
	for steps := range slices.Chunk(b.Steps, block) {
		took := 0.0
		for _, d := range steps {
			took += d.Seconds() / float64(len(steps))
		}
		t.Rates = append(t.Rates, float64(b.Tokens)/took)
		t.Mfus = append(t.Mfus, b.FLOPs/took/b.Peak)
	}
	t.last = b
	return t.Rates[before:]
}

// tflops returns the rate of the model's products.
func (t Samples) tflops() float64 {
	return bench.Median(t.Rates) * t.last.FLOPs / float64(t.last.Tokens) / 1e12
}

// printSamples prints one line per precision.
func printSamples(w io.Writer, all []Samples) {
	fmt.Fprintf(w, "%-18s %9s %9s %7s %9s %10s %11s\n", "precision", "tokens/s", "TFLOP/s", "MFU", "over "+all[0].precision, "memory", "activations")
	for i, t := range all {
		over := 1.0
		if i > 0 {
			over = bench.Median(t.over)
		}
		fmt.Fprintf(w, "%-18s %9s %9.3f %6.1f%% %9.2f %10s %11s\n", t.precision, report.Thousands(bench.Median(t.Rates)), t.tflops(),
			100*bench.Median(t.Mfus), over, system.Bytes(t.last.Memory), system.Bytes(slices.Max(t.last.Activations)))
	}
	fmt.Fprintln(w, "MFU: share of the peak multiply-add rate in the type of weights and activations, measured before each turn; memory: peak resident size; activations: the largest of any rank")
}

// writeJSON writes the results of a precision as JSON lines.
func (f *benchFlags) writeJSON(lines io.Writer, cfg config.Config, t Samples, first string) (err error) {
	write := func(name string, value float64) {
		err = errors.Join(err, json.NewEncoder(lines).Encode(struct {
			Name   string  `json:"name"`
			Value  float64 `json:"value"`
			Flavor string  `json:"flavor"`
			Ranks  int     `json:"np"`
		}{t.precision + "_" + name, value, cfg.Flavor, f.ranks.Count}))
	}
	write("tokens_per_s", bench.Median(t.Rates))
	write("tflops", t.tflops())
	write("mfu", bench.Median(t.Mfus))
	write("memory_bytes", float64(t.last.Memory))
	write("activation_bytes", float64(slices.Max(t.last.Activations)))
	if t.precision != first {
		write("over_"+first, bench.Median(t.over))
	}
	return err
}
