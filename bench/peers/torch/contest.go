package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"spmoe/bench"
)

// run prints one line per row. A side that lacks memory for a row does not end the run; any other
// failure of a side is an error, after the last row.
func (c *contest) run(ctx context.Context) error {
	said, err := side{program: c.python, args: []string{c.script, "--options"}}.output(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.python, err)
	}
	var options []option
	if err := json.Unmarshal(said, &options); err != nil {
		return fmt.Errorf("%s printed %q: %w", c.python, said, err)
	}
	fmt.Fprintf(c.out, "%d threads, %d ranks; this engine in %s, PyTorch in bf16; medians of %d turns each\n", c.threads, c.ranks, c.precision, c.rounds)
	fmt.Fprintf(c.out, "%-16s %9s %9s %6s %9s %9s\n", "tokens/s, GiB", "engine", "PyTorch", "ratio", "memory", "PyTorch's")
	var failed error
	for _, r := range c.rows {
		result, err := c.compare(ctx, r, options)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		result.print(c)
		failed = errors.Join(failed, result.failed())
	}
	return failed
}

// result is what a row measured. A side without figures has an error.
type result struct {
	row          row
	setting      setting
	tried        int
	ours, theirs measurement
}

// measurement is one side of a row, turn by turn.
type measurement struct {
	rates, memory []float64
	failure       error
}

// compare searches PyTorch's best setting for a row and measures both sides in turns.
func (c *contest) compare(ctx context.Context, r row, options []option) (res result, err error) {
	shape, err := side{program: c.launcher, args: r.inspect()}.output(ctx)
	if err != nil {
		return res, err
	}
	chosen, fixed, err := start(options, c.set)
	if err != nil {
		return res, err
	}
	for i := range fixed {
		fixed[i] = fixed[i] || c.fast
	}
	res.row = r
	res.setting, res.theirs.failure = search(options, chosen, fixed, func(s setting) (float64, error) {
		res.tried++
		values, err := c.torch(shape, s, 1, 1).figures(ctx)
		return values["torch_bf16_tokens_per_s"], err
	})
	for range c.rounds {
		own := side{program: c.launcher, args: r.benchTrain(c.ranks, c.threads/c.ranks, c.precision)}
		res.ours.turn(ctx, own, c.precision)
		res.theirs.turn(ctx, c.torch(shape, res.setting, c.warm, c.steps), "torch_bf16")
	}
	return res, ctx.Err()
}

// torch returns PyTorch's side of a row.
func (c *contest) torch(shape []byte, s setting, warm, steps int) side {
	args := []string{c.script, "--threads", strconv.Itoa(c.threads), "--warm", strconv.Itoa(warm), "--steps", strconv.Itoa(steps), "--set", s.String()}
	return side{c.python, args, shape}
}

// turn measures a side once, unless it has failed before.
func (m *measurement) turn(ctx context.Context, s side, prefix string) {
	if m.failure != nil {
		return
	}
	values, err := s.figures(ctx)
	if err != nil {
		m.failure = err
		return
	}
	m.rates = append(m.rates, values[prefix+"_tokens_per_s"])
	m.memory = append(m.memory, values[prefix+"_memory_bytes"])
}

// columns returns the rate and the memory of a side as text: "-" for one that failed.
func (m measurement) columns() (rate, memory string) {
	if m.failure != nil {
		return "-", "-"
	}
	return fmt.Sprintf("%.0f", bench.Median(m.rates)), fmt.Sprintf("%.2f", bench.Median(m.memory)/(1<<30))
}

func (r result) print(c *contest) {
	ours, ownMemory := r.ours.columns()
	theirs, memory := r.theirs.columns()
	ratio := "-"
	if r.ours.failure == nil && r.theirs.failure == nil {
		ratio = fmt.Sprintf("%.2f", bench.MedianRatio(r.ours.rates, r.theirs.rates))
	}
	fmt.Fprintf(c.out, "%-16s %9s %9s %6s %9s %9s\n", r.row.name, ours, theirs, ratio, ownMemory, memory)
	fmt.Fprintf(c.out, "  steps of %d sequences of %d tokens; PyTorch's best of %d variants: %s\n", r.row.batch, r.row.seq, r.tried, r.setting)
	for _, s := range []struct {
		name    string
		failure error
	}{{"this engine", r.ours.failure}, {"PyTorch", r.theirs.failure}} {
		if s.failure != nil {
			fmt.Fprintf(c.out, "  %s does not train it: %v\n", s.name, s.failure)
		}
	}
}

// failed returns the sides' errors that are no lack of memory.
func (r result) failed() (err error) {
	for _, one := range []error{r.ours.failure, r.theirs.failure} {
		var f *failure
		if one != nil && !(errors.As(one, &f) && f.memory()) {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.row.name, one))
		}
	}
	return err
}
