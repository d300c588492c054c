package main

// verify-layouts: trains a few steps in every layout of the ranks and compares the states. Each run
// is a train command of its own, so the runs share nothing.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// verifyFlags are the flags of verify-layouts.
type verifyFlags struct {
	ranks rankFlags
	json  string
	given *[]assignment
}

func defineVerifyLayouts(fs *flag.FlagSet) action {
	f, all := &verifyFlags{}, flag.NewFlagSet("", flag.ContinueOnError)
	f.ranks.define(all)
	all.StringVar(&f.json, "json", "", "`FILE` write a JSON line per layout to FILE")
	f.given = bind(all, verifyDefaults)
	selectFlags(fs, all, []string{"np", "n", "ranks", "timeout", "json", "flavor", "steps", "seq", "batch", "micro-batch", "recompute", "precision",
		"ep-exchange", "ep-dispatch", "ep-combine-backward", "ep-capacity", "threads", "seed", "init-from", "tokenizer", "data", "data-field", "document-mask", "recipe", "nvfp4.", "fp8.", "mx.", "guard.", "optimizer.", "model."})
	return noArguments(f.run)
}

// verifyDefaults returns the default configuration of the runs.
func verifyDefaults(flavor string, steps int) (trainer.Config, error) {
	const fewSteps = 5
	if steps == 0 {
		steps = fewSteps
	}
	cfg, err := trainDefaults(flavor, steps)
	cfg.EvalEvery, cfg.EvalSequences, cfg.SampleTokens, cfg.SaveEvery, cfg.RecordEvery = 0, 1, 0, 0, 0
	return cfg, err
}

// inLayout returns the configuration of a run in a layout. cfg has the micro-batch of one rank, so
// that all runs make the same passes.
func inLayout(cfg trainer.Config, l mesh.Layout) trainer.Config {
	cfg.SetLayout(l)
	cfg.MicroBatch /= l.World
	return cfg
}

// run trains in every layout, that of one rank first. Its state is the reference.
func (f *verifyFlags) run(ctx context.Context, env env) (err error) {
	if err := f.ranks.check(env); err != nil {
		return err
	}
	if env.cluster != nil {
		return errors.New("verify-layouts starts its ranks on one host: start it without mpirun or srun")
	}
	cfg, err := resolve(verifyDefaults, "", nil, *f.given)
	if err != nil {
		return err
	}
	cfg.MicroBatch = min(cfg.MicroBatch, cfg.Batch) * f.ranks.count // that of one rank: see inLayout
	layouts := mesh.All(f.ranks.count, cfg.Model.Experts)
	if f.ranks.count > 1 {
		layouts = append([]mesh.Layout{mesh.Default(1)}, layouts...)
	}
	for _, l := range layouts {
		if err := inLayout(cfg, l).Validate(l.World); err != nil {
			return err
		}
	}
	lines, err := f.lines()
	if err != nil {
		return err
	}
	runs := &layoutRuns{ctx: ctx, flags: f, cfg: cfg}
	if runs.dir, err = os.MkdirTemp("", "verify-layouts-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lines.Close(), os.RemoveAll(runs.dir)) }()
	fmt.Fprintf(env.out, "%s, %s, %s of %s; SHA-256 of weights, moments and selection biases; bytes and memory against the formula\n",
		cfg.Flavor, cfg.Precision, report.Plural(cfg.Steps, "step"), report.Plural(cfg.Batch, "sequence"))
	return compareLayouts(layouts, runs, env.out, lines)
}

// lines opens the file of JSON lines.
func (f *verifyFlags) lines() (io.WriteCloser, error) {
	if f.json == "" {
		return nopCloser{io.Discard}, nil
	}
	return os.Create(f.json)
}

// nopCloser is a writer that needs no closing.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// layoutRuns trains a configuration in layouts. It is a [layoutTrainer].
type layoutRuns struct {
	ctx   context.Context
	flags *verifyFlags
	cfg   trainer.Config
	dir   string
	steps string // the run of the reference that saved after every step; empty: none yet
}

// train implements [layoutTrainer].
func (v *layoutRuns) train(l mesh.Layout) (end layoutEnd, err error) {
	out := filepath.Join(v.dir, "run")
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	if err := v.start(v.cfg, l, out); err != nil {
		return end, err
	}
	if end.sums, err = stateOf(stepFolder(out, v.cfg.Steps)); err != nil {
		return end, err
	}
	log, err := record.Read(out)
	if err != nil {
		return end, err
	}
	if log.Usage == nil {
		return end, fmt.Errorf("%s does not say what the ranks moved", filepath.Join(out, record.File))
	}
	end.ratios, err = ratiosOf(inLayout(v.cfg, l), l, *log.Usage)
	return end, err
}

// start runs a train command in a layout.
func (v *layoutRuns) start(cfg trainer.Config, l mesh.Layout, out string) error {
	cfg = inLayout(cfg, l)
	cfg.Out = out
	text, err := trainer.ConfigTOML(cfg)
	if err != nil {
		return err
	}
	config := filepath.Join(v.dir, "config.toml")
	if err := system.WriteFile(config, text); err != nil {
		return err
	}
	var errs bytes.Buffer
	ranks := v.flags.ranks
	args := []string{"train", "--config", config, "--report=false", "--np", strconv.Itoa(l.World), "--ranks", ranks.kind, "--timeout", ranks.wait.String()}
	if code := run(v.ctx, args, io.Discard, &errs); code != exitOK {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		return failure{fmt.Errorf("%v on %d ranks: %s", l, l.World, lines[len(lines)-1]), code}
	}
	return nil
}

// stepFolder returns the folder of the checkpoint that a run has saved after a step.
func stepFolder(run string, step int) string {
	return filepath.Join(run, fmt.Sprintf("step-%08d", step))
}
