package measuring

// bench train: training steps in several precisions, which take turns. Ranks are goroutines, which
// compute as fast as processes.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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

// TrainRounds is the amount of measurement. In each round every precision runs its warm-up steps
// and then its measured steps.
type TrainRounds struct{ rounds, warm, Steps int }

// Block returns the number of steps in one sample. A sample covers one period of the memory guard,
// whose check only some steps pay for, or all steps if the period is longer.
func (s TrainRounds) Block(guard config.Guard) int { return min(max(guard.Every, 1), s.Steps) }

// BenchDefaults returns the default configuration of a measured step.
func BenchDefaults(flavor string, _ int) (config.Config, error) {
	cfg, err := config.Default(flavor)
	if err == nil && flavor != cli.DefaultFlavor {
		cfg.Seq, cfg.Batch, cfg.MicroBatch = 512, 8, 0
	}
	cfg.Precision = "bf16,mxfp8,mxint8"
	return cfg, err
}

// Samples are the measurements of one precision.
type Samples struct {
	precision string
	Rates     []float64 // tokens/s per block of steps
	Mfus      []float64 // MFU per block
	over      []float64 // tokens/s relative to the first precision, per round or block
	last      trainer.Benchmark
}

// train measures all precisions and prints their rates and where the time goes.
func (f *benchFlags) train(ctx context.Context, env cli.Env) error {
	cfg, err := f.trainConfig(env)
	if err != nil {
		return err
	}
	size := f.trainRounds()
	table, lines, done, err := f.outputs(env)
	if err != nil {
		return err
	}
	var all []Samples
	for _, p := range strings.Split(cfg.Precision, ",") {
		all = append(all, Samples{precision: p})
	}
	n := cfg.Model.Count()
	fmt.Fprintf(table, "%s, %s parameters (%s active), %s; steps of %s of %d tokens; %s of %s, tier %s\n", cfg.Flavor, report.Count(n.Total), report.Count(n.Active),
		report.Plural(f.ranks.Count, "rank"), report.Plural(cfg.Batch, "sequence"), cfg.Seq, report.Plural(spmd.Goroutines{N: f.ranks.Count}.Cores(), "core"), cpu.Model(), cpu.Best())
	running.PrintBuiltinText(table, cfg.Data)
	unit := ""
	if f.interleave {
		unit = " step by step"
	}
	fmt.Fprintf(table, "%s of %d warm-up and %d measured steps, the precisions in turns%s; medians of blocks of %s\n", report.Plural(size.rounds, "round"), size.warm, size.Steps,
		unit, report.Plural(size.Block(cfg.Guard), "step"))
	for range size.rounds {
		if err := f.round(ctx, cfg, size, all); err != nil {
			return errors.Join(err, done())
		}
	}
	f.printTable(table, all)
	for _, t := range all {
		printWork(table, t)
	}
	return errors.Join(f.writeJSON(lines, cfg, all), done())
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

// trainRounds returns the amount of measurement that the flags ask for.
func (f *benchFlags) trainRounds() TrainRounds {
	size := TrainRounds{3, 2, 4}
	if f.quick {
		size = TrainRounds{1, 1, 2}
	}
	if f.interleave {
		size.rounds, size.Steps = 1, max(size.rounds, 2)*size.Steps
	}
	return size
}

// round measures all precisions once.
func (f *benchFlags) round(ctx context.Context, cfg config.Config, size TrainRounds, all []Samples) error {
	// the memory of the last round would count as taken
	debug.FreeOSMemory()
	if f.interleave {
		return f.interleaved(ctx, cfg, size, all)
	}
	for i := range all {
		if i > 0 {
			debug.FreeOSMemory()
		}
		b, err := f.takeTurn(ctx, cfg, all[i].precision, size, nil)
		if err != nil {
			return err
		}
		rates := all[i].Add(b, size.Block(cfg.Guard))
		all[i].over = append(all[i].over, bench.Median(rates)/bench.Median(all[0].Newest(len(rates))))
	}
	return nil
}

// interleaved measures all precisions at once: each runs one step in turn. It compares them block
// by block.
func (f *benchFlags) interleaved(ctx context.Context, cfg config.Config, size TrainRounds, all []Samples) error {
	group, ctx := errgroup.WithContext(ctx)
	order, results := trainer.NewTurns(len(all)), make([]trainer.Benchmark, len(all))
	for i, t := range all {
		group.Go(func() (err error) {
			results[i], err = f.takeTurn(ctx, cfg, t.precision, size, order.Of(i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range all {
		results[i].Memory = results[len(results)-1].Memory // the last reading covers all precisions
		rates := all[i].Add(results[i], size.Block(cfg.Guard))
		for block, rate := range rates {
			all[i].over = append(all[i].over, rate/all[0].Newest(len(rates))[block])
		}
	}
	return nil
}

// takeTurn measures one precision once.
func (f *benchFlags) takeTurn(ctx context.Context, cfg config.Config, precision string, size TrainRounds, turn *trainer.Turn) (trainer.Benchmark, error) {
	turn.Begin()
	defer turn.Leave()
	cfg.Precision = precision
	job, err := trainer.Prepare(cfg, f.ranks.Count, "", nil)
	if err != nil {
		return trainer.Benchmark{}, err
	}
	b, err := job.Benchmark(ctx, spmd.Goroutines{N: f.ranks.Count, Limits: f.ranks.Limits()}, size.warm, size.Steps, turn)
	if errors.Is(err, events.ErrInterrupted) {
		return b, cli.Fail(err, cli.ExitInterrupted)
	} else if err != nil {
		return b, cli.Fail(fmt.Errorf("%s: %w", precision, err), cli.ExitFailed)
	}
	return b, nil
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

// Newest returns the tokens/s of the last n blocks.
func (t *Samples) Newest(n int) []float64 { return t.Rates[len(t.Rates)-n:] }

// values returns the named results of a precision for JSON. first is the baseline's name.
func (t Samples) values(first string) []namedValue {
	rate := bench.Median(t.Rates)
	all := []namedValue{
		{t.precision + "_tokens_per_s", rate},
		{t.precision + "_tflops", rate * t.last.FLOPs / float64(t.last.Tokens) / 1e12},
		{t.precision + "_mfu", bench.Median(t.Mfus)},
		{t.precision + "_memory_bytes", float64(t.last.Memory)},
		{t.precision + "_activation_bytes", float64(slices.Max(t.last.Activations))},
		{t.precision + "_objects_per_step", t.last.Objects},
		{t.precision + "_collections", float64(t.last.Collections)},
	}
	if t.precision != first {
		all = append(all, namedValue{t.precision + "_over_" + first, bench.Median(t.over)})
	}
	return all
}

type namedValue struct {
	name  string
	value float64
}

// printTable prints one line per precision.
func (f *benchFlags) printTable(w io.Writer, all []Samples) {
	fmt.Fprintf(w, "%-18s %9s %9s %7s %9s %10s %11s %12s %11s\n", "precision", "tokens/s", "TFLOP/s", "MFU", "over "+all[0].precision, "memory", "activations", "objects/step", "collections")
	for _, t := range all {
		rate := bench.Median(t.Rates)
		fmt.Fprintf(w, "%-18s %9s %9.3f %6.1f%% %9.2f %10s %11s %12.0f %11d\n", t.precision, report.Thousands(rate), rate*t.last.FLOPs/float64(t.last.Tokens)/1e12,
			100*bench.Median(t.Mfus), bench.Median(t.over), system.Bytes(t.last.Memory), system.Bytes(slices.Max(t.last.Activations)), t.last.Objects, t.last.Collections)
	}
	measured, resident := "before each turn", "peak resident size"
	if f.interleave {
		measured, resident = "before the first step", resident+", of all precisions together"
	}
	fmt.Fprintf(w, "MFU: share of the peak multiply-add rate in the type of weights and activations, measured %s; memory: %s; activations: the largest of any rank\n", measured, resident)
}

// mostColumns is the number of ranks that have a column of their own.
const mostColumns = 8

// printWork prints the time of the last turn by kind of work and rank, and how long each rank
// waited for each other rank.
func printWork(w io.Writer, t Samples) {
	p := t.last.Profile
	fmt.Fprintf(w, "\n%s: ms per step, by kind of work and rank\n%-20s %9s %7s", t.precision, "", "mean", "share")
	ranks := min(p.Ranks, mostColumns)
	for r := range ranks {
		fmt.Fprintf(w, " %9s", fmt.Sprintf("rank %d", r))
	}
	fmt.Fprintln(w)
	for _, f := range p.Families {
		fmt.Fprintf(w, "%-20s %9s %6.1f%%", f.Name, milliseconds(f.Mean), 100*float64(f.Mean)/float64(p.Step.Mean))
		for _, d := range f.Ranks[:ranks] {
			fmt.Fprintf(w, " %9s", milliseconds(d))
		}
		fmt.Fprintln(w)
	}
	PrintStepWaits(w, t.last.Waits)
}

// From manyRanks on, the worstWaits longest waits of one rank for another are printed, not all.
const manyRanks, worstWaits = 16, 5

// PrintStepWaits prints how long each rank (row) has waited for others (columns) per step.
func PrintStepWaits(w io.Writer, waits [][]time.Duration) {
	type pair struct {
		rank, other int
		took        time.Duration
	}
	var worst []pair
	for r, row := range waits {
		var sum time.Duration
		var all []string
		for other, d := range row {
			if sum += d; other != r && d > 0 {
				all = append(all, fmt.Sprintf("%s for rank %d", milliseconds(d), other))
				worst = append(worst, pair{r, other, d})
			}
		}
		if len(all) > 0 && len(waits) < manyRanks {
			fmt.Fprintf(w, "rank %d waits %s ms per step: %s\n", r, milliseconds(sum), strings.Join(all, ", "))
		}
	}
	if len(waits) < manyRanks {
		return
	}
	slices.SortStableFunc(worst, func(a, b pair) int { return cmp.Compare(b.took, a.took) })
	for _, p := range worst[:min(len(worst), worstWaits)] {
		fmt.Fprintf(w, "rank %d waits %s ms per step for rank %d\n", p.rank, milliseconds(p.took), p.other)
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", 1e3*d.Seconds()) }

// writeJSON writes all results as JSON lines.
func (f *benchFlags) writeJSON(lines io.Writer, cfg config.Config, all []Samples) (err error) {
	for _, t := range all {
		for _, v := range t.values(all[0].precision) {
			err = errors.Join(err, json.NewEncoder(lines).Encode(struct {
				Name   string  `json:"name"`
				Value  float64 `json:"value"`
				Flavor string  `json:"flavor"`
				Ranks  int     `json:"np"`
			}{v.name, v.value, cfg.Flavor, f.ranks.Count}))
		}
	}
	return err
}
