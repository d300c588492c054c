package main

// What commands that use a trained model have in common: which one, with which tokenizer, on how
// many ranks and how it computes.

import (
	"cmp"
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

// modelFlags say which model is used, and how.
type modelFlags struct {
	ranks                            int
	checkpoint, tokenizer, precision string
}

func (f *modelFlags) define(fs *flag.FlagSet) {
	defineRankCount(fs, &f.ranks, 1)
	fs.StringVar(&f.checkpoint, "checkpoint", "", "`FOLDER` of a run, of a checkpoint or of a Hugging Face model; empty: the newest run")
	fs.StringVar(&f.tokenizer, "tokenizer", "", "`NAME` of the tokenizer, as train takes it; empty: that of the folder")
	fs.StringVar(&f.precision, "precision", "", "`TEXT` how to compute, as train takes it; empty: as the run did, and bf16 for a Hugging Face model")
}

// usedModel is a trained model and how it is used.
type usedModel struct {
	source    *weights.Source
	cfg       trainer.Config // of its run, or what a run of it would start from
	isRun     bool
	recipe    moe.Precision
	tokenizer datasets.Tokenizer
	ranks     int
}

// open opens the model. Its errors are the user's to mend.
func (f *modelFlags) open() (m *usedModel, err error) {
	if f.ranks < 1 || f.ranks > collective.MaxRanks {
		return nil, fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.ranks, collective.MaxRanks)
	}
	path := f.checkpoint
	if path == "" {
		if path, err = newestRun(); err != nil {
			return nil, errors.New(strings.Replace(err.Error(), "--out", "--checkpoint", 1))
		}
	}
	m = &usedModel{ranks: f.ranks}
	if m.source, err = weights.Open(path); err != nil {
		return nil, err
	}
	if err := m.configure(f); err != nil {
		m.source.Close()
		return nil, err
	}
	return m, nil
}

// configure finds out how the model is to be used.
func (m *usedModel) configure(f *modelFlags) error {
	folder := m.source.Path()
	name, text, from, err := described(folder)
	if err != nil {
		return err
	}
	if m.cfg, err = resolve(from, name, text, nil); err != nil {
		return err
	}
	m.isRun = text != nil
	m.cfg.Model = m.source.Config()
	m.cfg.Model.MTPLayers = 0 // it trains with the model and has no part in what that says
	m.cfg.Precision = cmp.Or(f.precision, m.cfg.Precision)
	if m.recipe, err = m.cfg.Recipe(); err != nil {
		return err
	}
	if m.tokenizer, err = m.openTokenizer(folder, f.tokenizer); err != nil {
		return err
	}
	if ids, vocab := m.tokenizer.VocabSize(), m.cfg.Model.Vocab; ids > vocab {
		return fmt.Errorf("tokenizer %s has %d ids, the model's vocabulary %d: give the --tokenizer that it was trained with", m.tokenizer.Name(), ids, vocab)
	}
	return m.fits()
}

func (m *usedModel) openTokenizer(folder, name string) (datasets.Tokenizer, error) {
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

// fits refuses a number of ranks that cannot share the experts, and weights that need more memory
// than there is.
func (m *usedModel) fits() error {
	if m.cfg.Model.MoELayers() > 0 {
		if _, err := ep.NewLayout(m.cfg.Model.Experts, m.ranks); err != nil {
			return fmt.Errorf("-np %d: %s", m.ranks, strings.TrimPrefix(err.Error(), "ep: "))
		}
	}
	need, memory := int64(m.ranks)*m.cfg.EstimateMemory(m.ranks).Weights, system.ReadMemory()
	if memory.Total > 0 && need > memory.Available {
		return fmt.Errorf("the weights need about %s of memory on %s, %s of %s is available: each rank holds all weights but the experts, so use fewer ranks, or a smaller model",
			system.Bytes(need), report.Plural(m.ranks, "rank"), system.Bytes(memory.Available), system.Bytes(memory.Total))
	}
	return nil
}

// Close lets go of the files.
func (m *usedModel) Close() error { return m.source.Close() }

// run loads the model, for sequences of up to seq tokens, and runs body on every rank.
func (m *usedModel) run(seq int, body func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error) error {
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
