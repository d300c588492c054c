package checking

// compare: its flags. Package convergence plans, runs and judges.

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/launcher/cli"
	"spmoe/launcher/convergence"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/trainer/events"
)

// CompareFlags are the flags of compare that are not in the configuration.
type CompareFlags struct {
	ranks  running.RankFlags
	config string
	seeds  int
	margin float64 // percent
	jobs   int
	quick  bool
	Given  *[]cli.Assignment
}

// DefineCompare defines the flags of compare.
func DefineCompare(fs *flag.FlagSet) cli.Action {
	return new(CompareFlags).Define(fs)
}

// The default numbers of seeds, without and with --quick.
const (
	defaultSeeds = 10
	quickSeeds   = 3
)

// Define defines the flags, and returns what runs them.
func (f *CompareFlags) Define(fs *flag.FlagSet) cli.Action {
	f.ranks.Define(flag.NewFlagSet("", flag.ContinueOnError)) // its defaults: ranks are goroutines
	running.DefineRankCount(fs, &f.ranks.Count, 1)
	fs.StringVar(&f.config, "config", "", "(run) `FILE` read the configuration from the TOML file FILE; flags override it")
	fs.IntVar(&f.seeds, "seeds", 0, fmt.Sprintf("`N` train each arm with N seeds of initial weights and data order, fixed before the first run; 0: %d, with --quick %d", defaultSeeds, quickSeeds))
	fs.Float64Var(&f.margin, "margin", 0.5, "`PERCENT` largest difference from the baseline's loss that counts as equivalent")
	fs.IntVar(&f.jobs, "jobs", 1, "`N` runs to train at the same time")
	fs.BoolVar(&f.quick, "quick", false, "train a small model for a few steps, 2 minutes on two cores: finds broken recipes, but does not predict long runs")
	f.Given = cli.Bind(fs, convergence.Default)
	for name, usage := range map[string]string{
		"precision": "`LIST` arms to compare, the baseline first: precisions and recipe files such as mine.toml, changed by words after +, as in mxfp8+e5m2 or bf16+optimizer.lr=3e-3; the words are settings with a value and " + convergence.ShortNames() + "; a null arm, which differs from the baseline in rounding alone, is always added",
		"seed":      "`N` first seed of initial weights and data order",
		"out":       "`FOLDER` write the comparison to FOLDER, or continue the one there; empty: the next free runs/compare-N",
	} {
		fs.Lookup(name).Usage = usage
	}
	return f.run
}

// run makes the comparison, prints the verdicts and writes the numbers.
func (f *CompareFlags) run(ctx context.Context, env cli.Env) error {
	given, err := cli.AppendData(*f.Given, env.Args)
	if err := errors.Join(err, f.ranks.Check(env)); err != nil {
		return err
	}
	claim := &running.RunClaim{Wanted: true, Warn: env.ErrOut}
	defer claim.Release()
	c, err := f.Comparison(given, claim)
	if err != nil {
		return err
	}
	c.Command, c.Console = resumeCommand(env, c.Out), env.Out
	running.SetLastWords(ctx, func() { fmt.Fprintf(env.ErrOut, "\nlauncher: stopped at once; to continue: %s\n", c.Command) })
	if err := c.Check(); err != nil {
		return err
	}
	var names []string
	for _, a := range c.Arms[1:] {
		names = append(names, a.Name)
	}
	fmt.Fprintf(env.Out, "comparing %s with %s: %s of %s, in %s\n", strings.Join(names, ", "), c.Arms[0].Name,
		report.Plural(len(c.Arms)*c.Seeds, "run"), report.Plural(c.Config.Steps, "step"), c.Out)
	running.PrintBuiltinText(env.Out, c.Config.Data)
	result, err := c.Run(ctx)
	if errors.Is(err, events.ErrInterrupted) {
		fmt.Fprintf(env.Out, "interrupted; to continue: %s\n", c.Command)
		return cli.Fail(err, cli.ExitInterrupted)
	} else if err != nil {
		return cli.Fail(fmt.Errorf("%w\n  to continue: %s", err, c.Command), cli.ExitFailed)
	}
	for _, a := range result.Arms[1:] {
		fmt.Fprintf(env.Out, "\n%s\n", result.Sentence(a))
	}
	fmt.Fprintf(env.Out, "\nnumbers: %s\n", filepath.Join(c.Out, convergence.ResultFile))
	switch result.Verdict() {
	case convergence.Different:
		return cli.Fail(cli.Reported(errors.New("different")), cli.ExitFailed)
	case convergence.Undecided:
		return cli.Fail(cli.Reported(errors.New("undecided")), cli.ExitUndecided)
	}
	return nil
}

// Comparison returns the comparison that the flags describe, and claims its folder.
func (f *CompareFlags) Comparison(given []cli.Assignment, claim *running.RunClaim) (*convergence.Comparison, error) {
	text, err := cli.ReadConfig(f.config)
	if err != nil {
		return nil, err
	}
	from, seeds := cli.Defaults(convergence.Default), defaultSeeds
	if f.quick {
		from, seeds = convergence.Quick, quickSeeds
	}
	cfg, err := running.ResolveNew(from, f.config, text, given)
	if err != nil {
		return nil, err
	}
	if cfg.RecipeFile != "" {
		return nil, errors.New("recipe: a comparison takes recipe files among its precisions, such as --precision bf16,my.toml")
	}
	arms, err := armsOf(cfg.Precision)
	if err != nil {
		return nil, err
	}
	out := cfg.Out
	if out == "" {
		out, err = claim.TakeFree("compare")
	} else {
		err = claim.Take(out)
	}
	return &convergence.Comparison{
		Config: cfg, Ranks: f.ranks.Count, Arms: arms, Seeds: cmp.Or(f.seeds, seeds), Margin: f.margin / 100,
		Out: out, Held: claim.Lock, Jobs: f.jobs,
	}, err
}

// armsOf returns the arms in a list, and the null arm.
func armsOf(list string) ([]convergence.Arm, error) {
	all, err := convergence.ParseArms(list)
	if err != nil {
		return nil, fmt.Errorf("--precision: %w", err)
	}
	null := all[0].Null()
	all = slices.DeleteFunc(all, func(a convergence.Arm) bool { return a.Name == null.Name })
	if len(all) < 2 {
		return nil, fmt.Errorf("--precision: %q is one arm: give the baseline and at least one other, such as bf16,mxfp8", list)
	}
	return append(all, null), nil
}

// resumeCommand returns the command line that continues a comparison.
func resumeCommand(env cli.Env, out string) string {
	words := []string{"launcher"}
	named := false
	for _, arg := range env.CommandLine {
		name, isFlag := cli.FlagName(arg)
		named = named || isFlag && name == "out"
		words = append(words, report.Shell(arg))
	}
	if !named {
		words = append(words, "--out", report.Shell(out))
	}
	return strings.Join(words, " ")
}
