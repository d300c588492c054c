package main

// What the commands that use a trained model share: its folder, tokenizer, precision and ranks.

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/datasets"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/tensor"
)

// modelFlags select a trained model and the way to run it.
type modelFlags struct {
	ranks                            int
	checkpoint, tokenizer, precision string
	averaged                         bool
}

func (f *modelFlags) define(fs *flag.FlagSet) {
	defineRankCount(fs, &f.ranks, 1)
	fs.StringVar(&f.checkpoint, "checkpoint", "", "`FOLDER` run, checkpoint or Hugging Face model to use; empty: the newest run")
	defineAveraged(fs, &f.averaged)
	fs.StringVar(&f.tokenizer, "tokenizer", "", "`NAME` tokenizer, as in train --tokenizer; empty: the folder's")
	fs.StringVar(&f.precision, "precision", "", "`TEXT` number formats, as in train --precision; empty: the run's, and bf16 for a Hugging Face model")
}

// defineAveraged defines the flag that selects averaged weights.
func defineAveraged(fs *flag.FlagSet, averaged *bool) {
	fs.BoolVar(averaged, "averaged", false, "use the averaged weights that a run with --ema saves, instead of the last ones")
}

// openWeights opens the weights in a folder with open: the averaged ones if the flag says so.
func openWeights(open func(path string) (*weights.Source, error), path string, averaged bool) (*weights.Source, error) {
	source, err := open(path)
	if err != nil || !averaged {
		return source, err
	}
	if err := source.UseAverage(); err != nil {
		source.Close()
		return nil, fmt.Errorf("--averaged: %w", err)
	}
	return source, nil
}

// trainedModel is a trained model with the settings to run it.
type trainedModel struct {
	source    *weights.Source
	cfg       trainer.Config // the run's configuration, or the default one for a Hugging Face model
	isRun     bool
	recipe    moe.Precision
	tokenizer datasets.Tokenizer
	ranks     int
}

// open opens the model. Its errors are user errors.
func (f *modelFlags) open() (m *trainedModel, err error) {
	if f.ranks < 1 || f.ranks > collective.MaxRanks {
		return nil, fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.ranks, collective.MaxRanks)
	}
	path := f.checkpoint
	if path == "" {
		if path, err = newestRun("give its folder with --checkpoint"); err != nil {
			return nil, err
		}
	}
	m = &trainedModel{ranks: f.ranks}
	if m.source, err = openWeights(weights.Open, path, f.averaged); err != nil {
		return nil, err
	}
	if err := m.configure(f); err != nil {
		m.source.Close()
		return nil, err
	}
	return m, nil
}

// configure determines the settings to run the model with.
func (m *trainedModel) configure(f *modelFlags) error {
	folder := m.source.Path()
	name, text, from, err := readFolder(folder)
	if err != nil {
		return err
	}
	if m.cfg, err = resolve(from, name, text, nil); err != nil {
		return err
	}
	m.isRun = text != nil
	m.cfg.Model = m.source.Config()
	m.cfg.Model.MTPLayers = 0 // the MTP module is for training only
	if f.precision != "" {
		m.cfg.Precision, m.cfg.RecipeFile = f.precision, ""
	}
	if m.recipe, err = m.cfg.Recipe(); err != nil {
		return err
	}
	if m.tokenizer, err = m.openTokenizer(folder, f.tokenizer); err != nil {
		return err
	}
	if ids, vocab := m.tokenizer.VocabSize(), m.cfg.Model.Vocab; ids > vocab {
		return fmt.Errorf("tokenizer %s has %d ids but the model's vocabulary is %d: give the --tokenizer that it was trained with", m.tokenizer.Name(), ids, vocab)
	}
	return m.fits()
}

func (m *trainedModel) openTokenizer(folder, name string) (datasets.Tokenizer, error) {
	switch {
	case name != "":
		return datasets.OpenTokenizer(name)
	case m.isRun:
		return datasets.RunTokenizer(folder, m.cfg.Tokenizer)
	}
	path := filepath.Join(folder, datasets.TokenizerFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: give the --tokenizer that the model was trained with", folder, datasets.TokenizerFile)
	}
	return datasets.OpenTokenizer(path)
}

// fits returns an error if the ranks cannot share the experts, or if the weights need more memory
// than is available.
func (m *trainedModel) fits() error {
	if m.cfg.Model.MoELayers() > 0 {
		if _, err := ep.NewLayout(m.cfg.Model.Experts, m.ranks); err != nil {
			return fmt.Errorf("-np %d: %s", m.ranks, strings.TrimPrefix(err.Error(), "ep: "))
		}
	}
	need, memory := int64(m.ranks)*m.cfg.EstimateMemory(m.ranks).Weights, system.ReadMemory()
	if memory.Total > 0 && need > memory.Available {
		return fmt.Errorf("the weights need about %s of memory on %s, %s of %s is available: each rank holds all weights except the experts, so use fewer ranks or a smaller model",
			system.Bytes(need), report.Plural(m.ranks, "rank"), system.Bytes(memory.Available), system.Bytes(memory.Total))
	}
	return nil
}

// Close closes the files.
func (m *trainedModel) Close() error { return m.source.Close() }

// run loads the model, for sequences of up to seq tokens, and runs body on every rank.
func (m *trainedModel) run(seq int, body func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error) error {
	world := spmd.Goroutines{N: m.ranks}
	team := tensor.NewTeam(m.ranks, max(1, world.Cores()/m.ranks))
	defer team.Close()
	return world.Run(func(c *collective.Comm) error {
		ex := team.Join()
		defer ex.Close()
		c.SetHelper(ex)
		model, err := moe.NewInference(m.cfg.Model, m.recipe, seq, c, nil)
		if err != nil {
			return err
		}
		if err := m.source.Load(ex, model); err != nil {
			return err
		}
		return body(c, ex, model)
	})
}
