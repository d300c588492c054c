package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"spmoe/bench"
	"spmoe/tensor/cpu"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	quick bool
	match string
	json  string
	world worldFlags
	// Of bench train:
	interleave bool
	given      *[]assignment
}

func defineBench(fs *flag.FlagSet) func(context.Context, env) error {
	f := &benchFlags{}
	fs.BoolVar(&f.quick, "quick", false, "fewer shapes and rounds: under 40 seconds")
	fs.StringVar(&f.match, "match", "", "`REGEXP`: measure only what has a match in \"name shape\"")
	fs.StringVar(&f.json, "json", "", "`FILE` to write results to, one JSON object a line; - writes them to the output, without the table")
	fs.BoolVar(&f.interleave, "interleave", false, "with bench train: let precisions take turns step by step, all models in memory, so that what slows the machine down meets all")
	f.world.define(fs)
	f.given = bind(fs, benchDefaults)
	fs.Lookup("precision").Usage = "`LIST` of precisions that bench train compares, the baseline first"
	return f.run
}

func (f *benchFlags) run(ctx context.Context, env env) error {
	what := strings.Join(env.args, " ")
	if what != "train" && what != "ratios" {
		if err := f.onlyTrain(); err != nil {
			return err
		}
	}
	switch what {
	case "train":
		return f.train(ctx, env)
	case "exchange":
		return f.exchange(ctx, env)
	case "link":
		return f.link(ctx, env)
	case "ratios":
		return f.ratios(ctx, env)
	case "kernels":
		return f.kernels(ctx, env)
	default:
		return fmt.Errorf("bench %q: say what to measure: kernels, exchange, link, train or ratios", what)
	}
}

func (f *benchFlags) kernels(ctx context.Context, env env) (err error) {
	match, err := f.pattern()
	if err != nil {
		return err
	}
	table, lines, done, err := f.outputs(env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	fmt.Fprintf(table, "one core of %s, tier %s; medians, kernel and limit measured in turns\n", cpu.Model(), cpu.Best())
	fmt.Fprintf(table, "%-22s %-20s %10s %-8s %9s %6s  %9s  %s\n", "kernel", "shape", "rate", "", "limit", "share", "over BF16", "the limit is")
	var failed error
	yield := func(r bench.Result) {
		over := ""
		if r.OverBF16 != 0 {
			over = fmt.Sprintf("%.2f x", r.OverBF16)
		}
		fmt.Fprintf(table, "%-22s %-20s %10.*f %-8s %9.1f %5.1f%%  %9s  %s\n", r.Name, r.Shape, decimals(r), r.Value, r.Unit, r.Limit, 100*r.Share, over, r.Bound)
		failed = errors.Join(failed, json.NewEncoder(lines).Encode(r))
	}
	if err := bench.Kernels(ctx, bench.Options{Quick: f.quick, Match: match}, yield); err != nil {
		return failure{err, exitInterrupted}
	}
	for _, k := range lowerTiers() {
		if match.MatchString(k.String()) {
			r, err := k.measure(ctx, f.quick)
			if err != nil {
				return failure{fmt.Errorf("%v: %w", k, err), exitFailed}
			}
			yield(r)
		}
	}
	return failed
}

func (f *benchFlags) pattern() (*regexp.Regexp, error) {
	match, err := regexp.Compile(f.match)
	if err != nil {
		return nil, fmt.Errorf("--match: %w: give a regular expression such as ^mxfp8_gemm", err)
	}
	return match, nil
}

// outputs opens what the table and the JSON lines are written to; done completes them.
func (f *benchFlags) outputs(env env) (table, lines io.Writer, done func() error, err error) {
	done = func() error { return nil }
	switch f.json {
	case "":
		return env.out, io.Discard, done, nil
	case "-":
		return io.Discard, env.out, done, nil
	}
	if env.member != nil && !env.member.Leads() {
		return io.Discard, io.Discard, done, nil
	}
	file, err := os.Create(f.json)
	if err != nil {
		return nil, nil, nil, err
	}
	return env.out, file, file.Close, nil
}

// decimals is how many a rate is printed with: durations are a few milliseconds or less.
func decimals(r bench.Result) int {
	if r.Unit == "ms" {
		return 3
	}
	return 1
}
