// Package measuring has the commands that measure this machine and project onto others.
package measuring

// bench: the flags of its subcommands, and bench kernels.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"

	"spmoe/bench"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/tensor/cpu"
)

// benchFlags are the flags of bench. Each subcommand defines those that it reads.
type benchFlags struct {
	quick bool
	match string
	json  string
	ranks running.RankFlags
	given *[]cli.Assignment
}

// define defines the named flags.
func (f *benchFlags) define(fs *flag.FlagSet, names []string) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	all.BoolVar(&f.quick, "quick", false, "measure fewer shapes and rounds, in less than 40 seconds")
	all.StringVar(&f.match, "match", "", "`REGEXP` measure only what matches in \"name shape\"")
	all.StringVar(&f.json, "json", "", "`FILE` write the results to FILE as JSON lines; -: to standard output, without the table")
	f.ranks.Define(all)
	f.given = cli.Bind(all, BenchDefaults)
	all.Lookup("precision").Usage = "`LIST` precisions to compare, the baseline first"
	cli.SelectFlags(fs, all, names)
}

// BenchCommands are the subcommands of bench.
func BenchCommands() []cli.Command {
	sub := func(name, about string, flags []string, run func(*benchFlags, context.Context, cli.Env) error, examples ...string) cli.Command {
		return cli.Command{Name: "bench " + name, About: about, Examples: examples, Define: func(fs *flag.FlagSet) cli.Action {
			f := &benchFlags{}
			f.define(fs, flags)
			return cli.NoArguments(func(ctx context.Context, env cli.Env) error { return run(f, ctx, env) })
		}}
	}
	train := []string{
		"np", "n", "timeout", "quick", "json", "flavor", "model.", "seq", "batch", "precision", "micro-batch", "chain-passes", "recompute", "dp-replicate", "dp-shard",
		"cp", "tp", "ep", "pp", "pp-schedule", "pp-stages-per-rank", "pp-microbatches", "pp-overlap", "ep-exchange", "ep-dispatch", "ep-combine-backward", "ep-capacity",
		"threads", "sum", "nvfp4.", "mxfp4.", "fp8.", "mx.", "optimizer.", "guard.", "seed", "init-from", "tokenizer", "data", "data-field", "document-mask",
	}
	return []cli.Command{
		sub("kernels", "measure one core's kernels against the peaks of the same core",
			[]string{"quick", "match", "json"}, (*benchFlags).kernels,
			"bench kernels --quick", "bench kernels --match ^mxfp8_gemm --json kernels.jsonl"),
		sub("exchange", "measure the collectives and the token exchange between ranks",
			append(running.RankFlagNames(), "quick", "match", "json"), (*benchFlags).exchange,
			"-np 4 bench exchange", "-np 4 bench exchange --ranks process --quick"),
		sub("train", "measure training steps in several precisions, in turns",
			train, (*benchFlags).train,
			"-np 2 bench train --flavor small", "-np 8 bench train --flavor small --json train.jsonl"),
	}
}

// kernels measures kernels on one core.
func (f *benchFlags) kernels(ctx context.Context, env cli.Env) (err error) {
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
		return cli.Fail(err, cli.ExitInterrupted)
	}
	return failed
}

// pattern compiles --match.
func (f *benchFlags) pattern() (*regexp.Regexp, error) {
	match, err := regexp.Compile(f.match)
	if err != nil {
		return nil, fmt.Errorf("--match: %w: give a regular expression such as ^mxfp8_gemm", err)
	}
	return match, nil
}

// outputs opens the writers of the table and of the JSON lines. done completes them.
func (f *benchFlags) outputs(env cli.Env) (table, lines io.Writer, done func() error, err error) {
	done = func() error { return nil }
	switch f.json {
	case "":
		return env.Out, io.Discard, done, nil
	case "-":
		return io.Discard, env.Out, done, nil
	}
	if env.Member != nil && !env.Member.Leads() {
		return io.Discard, io.Discard, done, nil
	}
	file, err := os.Create(f.json)
	if err != nil {
		return nil, nil, nil, err
	}
	return env.Out, file, file.Close, nil
}

// decimals returns the number of decimals to print: durations are a few milliseconds or less.
func decimals(r bench.Result) int {
	if r.Unit == "ms" {
		return 3
	}
	return 1
}
