package main

// verify-layouts: trains a few steps in every layout of the ranks and compares the states. Each run
// is a train command of its own, so the runs share nothing.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/launcher/checkpoint"
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
		"ep-exchange", "ep-dispatch", "ep-combine-backward", "ep-capacity", "threads", "seed", "init-from", "tokenizer", "data", "data-field", "document-mask", "mx.", "guard.", "optimizer.", "model."})
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

// verified is the result of a layout.
type verified struct {
	Layout string      `json:"layout"`
	Ranks  int         `json:"np"`
	Mesh   mesh.Layout `json:"mesh"`
	SHA256 string      `json:"sha256"`
	Same   bool        `json:"same"`                       // as the state of one rank
	First  string      `json:"first_difference,omitempty"` // a tensor
}

// run trains in every layout, that of one rank first. Its state is the reference.
func (f *verifyFlags) run(ctx context.Context, env env) error {
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
	fmt.Fprintf(env.out, "%s, %s, %s of %s; SHA-256 of weights, moments and selection biases\n",
		cfg.Flavor, cfg.Precision, report.Plural(cfg.Steps, "step"), report.Plural(cfg.Batch, "sequence"))
	train := func(l mesh.Layout) (trainer.StateSums, error) { return f.train(ctx, cfg, l) }
	return errors.Join(compareLayouts(layouts, train, env.out, lines), lines.Close())
}

// compareLayouts trains in each layout and prints the results. train returns the checksums of the
// state that a layout ends with.
func compareLayouts(layouts []mesh.Layout, train func(mesh.Layout) (trainer.StateSums, error), out, lines io.Writer) error {
	var first trainer.StateSums
	var differ []string
	for i, l := range layouts {
		sums, err := train(l)
		if err != nil {
			return err
		}
		if i == 0 {
			first = sums
		}
		v, note := verified{Layout: l.Name(), Ranks: l.World, Mesh: l, SHA256: sums.All, Same: sums.All == first.All}, "same"
		if !v.Same {
			others := first.Differing(sums)
			v.First = others[0]
			note = fmt.Sprintf("DIFFERS in %s, first in %s", report.Plural(len(others), "tensor"), v.First)
			differ = append(differ, v.Layout)
		}
		fmt.Fprintf(out, "  -np %-3d %-36s %s %s\n", l.World, l, sums.All, note)
		if err := json.NewEncoder(lines).Encode(v); err != nil {
			return err
		}
	}
	if len(differ) > 0 {
		return failure{fmt.Errorf("%d of %d layouts do not end in the state of %s: %s", len(differ), len(layouts), layouts[0].Name(), strings.Join(differ, ", ")), exitFailed}
	}
	fmt.Fprintf(out, "%s, one state\n", report.Plural(len(layouts), "layout"))
	return nil
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

// train runs a train command in a layout and returns the checksums of the state that it ends with.
func (f *verifyFlags) train(ctx context.Context, cfg trainer.Config, l mesh.Layout) (sums trainer.StateSums, err error) {
	dir, err := os.MkdirTemp("", "verify-layouts-")
	if err != nil {
		return sums, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg = inLayout(cfg, l)
	cfg.Out = filepath.Join(dir, "run")
	text, err := trainer.ConfigTOML(cfg)
	if err != nil {
		return sums, err
	}
	config := filepath.Join(dir, "config.toml")
	if err := system.WriteFile(config, text); err != nil {
		return sums, err
	}
	var errs bytes.Buffer
	args := []string{"train", "--config", config, "--report=false", "--np", strconv.Itoa(l.World), "--ranks", f.ranks.kind, "--timeout", f.ranks.wait.String()}
	if code := run(ctx, args, io.Discard, &errs); code != exitOK {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		return sums, failure{fmt.Errorf("%v on %d ranks: %s", l, l.World, lines[len(lines)-1]), code}
	}
	return stateOf(filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", cfg.Steps)))
}

// stateOf returns the checksums of the state in a checkpoint.
func stateOf(path string) (sums trainer.StateSums, err error) {
	r, err := checkpoint.Open(path)
	if err != nil {
		return sums, err
	}
	sums, err = trainer.ReadStateSums(r)
	return sums, errors.Join(err, r.Close())
}
