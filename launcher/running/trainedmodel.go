package running

// What the commands that use a trained model share: its folder, tokenizer, precision and ranks.

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/generate"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
)

// WriteFailure returns the failure of a command that writes weights. An interrupted command leaves
// no files.
func WriteFailure(err error) error {
	if errors.Is(err, context.Canceled) {
		return cli.Fail(err, cli.ExitInterrupted)
	}
	return cli.Fail(err, cli.ExitFailed)
}

// Prompts returns the prompts with the text that the model expects first, such as a
// beginning-of-sequence token. A run takes special tokens in them if it was trained so; a note says
// that it does not. From then on, the tokenizer of a Hugging Face model takes them.
func (m *TrainedModel) Prompts(all []string, warn io.Writer) ([]string, error) {
	if m.IsRun {
		if _, spelled := datasets.CutSpecial(m.Tokenizer, []byte(strings.Join(all, "\n"))); spelled != nil && !m.Cfg.SpecialTokens {
			fmt.Fprintln(warn, "launcher: note: special tokens in prompts are encoded as letters, as in the text of the run, which has no special_tokens")
		}
		return all, nil
	}
	_ = datasets.TakeSpecial(m.Tokenizer) // if it has any
	begin, err := generate.Beginning(m.Source.Path())
	if begin == "" || err != nil {
		return all, err
	}
	asked := make([]string, len(all))
	for i, p := range all {
		if asked[i] = p; !strings.HasPrefix(p, begin) {
			asked[i] = begin + p
		}
	}
	return asked, nil
}

// ModelFlags select a trained model and the way to run it.
type ModelFlags struct {
	ranks                            int
	checkpoint, tokenizer, precision string
}

// Define defines the flags that choose a model.
func (f *ModelFlags) Define(fs *flag.FlagSet) {
	DefineRankCount(fs, &f.ranks, 1)
	fs.StringVar(&f.checkpoint, "checkpoint", "", "`FOLDER` run, checkpoint or Hugging Face model to use; empty: the newest run")
	fs.StringVar(&f.tokenizer, "tokenizer", "", "`NAME` tokenizer, as in train --tokenizer; empty: the folder's")
	fs.StringVar(&f.precision, "precision", "", "`TEXT` number formats, as in train --precision; empty: the run's, and bf16 for a Hugging Face model")
}

// printNotes prints what was assumed about the weights, and which tensors are not used.
func printNotes(warn io.Writer, source *weights.Source) {
	for _, note := range source.Notes() {
		fmt.Fprintf(warn, "launcher: NOTE: %s\n", note)
	}
}

// TrainedModel is a trained model with the settings to run it.
type TrainedModel struct {
	Source    *weights.Source
	Cfg       config.Config // the run's configuration, or the default one for a Hugging Face model
	IsRun     bool
	recipe    moe.Precision
	Tokenizer datasets.Tokenizer
	Ranks     int
}

// Open opens the model, and prints to warn what was assumed. Its errors are user errors.
func (f *ModelFlags) Open(warn io.Writer) (m *TrainedModel, err error) {
	if f.ranks < 1 || f.ranks > collective.MaxRanks {
		return nil, fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.ranks, collective.MaxRanks)
	}
	path := f.checkpoint
	if path == "" {
		if path, err = NewestRun("give its folder with --checkpoint"); err != nil {
			return nil, err
		}
	}
	m = &TrainedModel{Ranks: f.ranks}
	if m.Source, err = weights.Open(path); err != nil {
		return nil, err
	}
	printNotes(warn, m.Source)
	if err := m.configure(f); err != nil {
		m.Source.Close()
		return nil, err
	}
	return m, nil
}

// configure determines the settings to run the model with.
func (m *TrainedModel) configure(f *ModelFlags) error {
	folder := m.Source.Path()
	name, text, from, err := ReadFolder(folder)
	if err != nil {
		return err
	}
	if m.Cfg, err = cli.Resolve(from, name, text, nil); err != nil {
		return err
	}
	m.IsRun = text != nil
	m.Cfg.Model = m.Source.Config()
	m.Cfg.Model.MTPLayers = 0 // multi-token prediction is for training only
	if f.precision != "" {
		m.Cfg.Precision = f.precision
		m.Cfg.RecipeFile = ""
		m.Cfg.Sum = mx.SumFP32.String()
	}
	if m.recipe, err = m.Cfg.Recipe(); err != nil {
		return err
	}
	if m.Tokenizer, err = m.openTokenizer(folder, f.tokenizer); err != nil {
		return err
	}
	if m.Cfg.SpecialTokens {
		err = datasets.TakeSpecial(m.Tokenizer)
	}
	if ids, vocab := m.Tokenizer.VocabSize(), m.Cfg.Model.Vocab; ids > vocab {
		return fmt.Errorf("tokenizer %s has %d ids but the model's vocabulary is %d: give the --tokenizer that it was trained with", m.Tokenizer.Name(), ids, vocab)
	}
	return cmp.Or(err, m.fits())
}

func (m *TrainedModel) openTokenizer(folder, name string) (datasets.Tokenizer, error) {
	switch {
	case name != "":
		return datasets.OpenTokenizer(name)
	case m.IsRun:
		return datasets.RunTokenizer(folder, m.Cfg.Tokenizer, m.Cfg.EndToken)
	}
	path := filepath.Join(folder, datasets.TokenizerFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: give the --tokenizer that the model was trained with", folder, datasets.TokenizerFile)
	}
	return datasets.OpenTokenizer(path)
}

// fits returns an error if the ranks cannot share the experts, or if the weights need more memory
// than is available.
func (m *TrainedModel) fits() error {
	if m.Cfg.Model.MoELayers() > 0 {
		if _, err := ep.NewLayout(m.Cfg.Model.Experts, m.Ranks); err != nil {
			return fmt.Errorf("-np %d: %s", m.Ranks, strings.TrimPrefix(err.Error(), "ep: "))
		}
	}
	need := int64(m.Ranks) * estimate.Memory(m.Cfg, m.Ranks).Weights
	memory := system.ReadMemory()
	if memory.Total > 0 && need > memory.Available {
		return fmt.Errorf("the weights need about %s of memory on %s, %s of %s is available: each rank holds all weights except the experts, so use fewer ranks or a smaller model",
			system.Bytes(need), report.Plural(m.Ranks, "rank"), system.Bytes(memory.Available), system.Bytes(memory.Total))
	}
	return nil
}

// Close closes the files.
func (m *TrainedModel) Close() error { return m.Source.Close() }

// Run loads the model, for sequences of up to seq tokens, and runs body on every rank.
func (m *TrainedModel) Run(seq int, body func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error) error {
	world := spmd.Goroutines{N: m.Ranks}
	team := tensor.NewTeam(m.Ranks, max(1, world.Cores()/m.Ranks))
	defer team.Close()
	if m.recipe.Sum.OfGPU() {
		team.MakePortable()
	}
	return world.Run(func(c *collective.Comm) error {
		ex := team.Join()
		defer ex.Close()
		c.SetHelper(ex)
		exchange, err := m.exchange(c)
		if err != nil {
			return err
		}
		model, err := moe.NewInference(m.Cfg.Model, m.recipe, seq, c, exchange)
		if err != nil {
			return err
		}
		if err := m.Source.Load(ex, model); err != nil {
			return err
		}
		return body(c, ex, model)
	})
}

// exchange returns the exchange of a training step, which has no limit on the load of experts.
func (m *TrainedModel) exchange(c *collective.Comm) (ep.Exchange, error) {
	if m.Cfg.Model.MoELayers() == 0 {
		return nil, nil
	}
	options, err := m.Cfg.Exchange()
	if err != nil {
		return nil, err
	}
	options.Capacity = 0
	return moe.OneGroup(c).NewExchange(m.Cfg.EPExchange, m.Cfg.Model.Experts, options)
}

// CheckExact returns an error if decoding cannot have the bits of the run's training steps.
func (m *TrainedModel) CheckExact() error {
	switch {
	case m.Cfg.EPCapacity > 0:
		return fmt.Errorf("ep_capacity is %v: a training step drops the tokens of an expert that its batch overloads, so the numbers of a token depend on the others", m.Cfg.EPCapacity)
	case m.Cfg.Model.ForceBalance:
		return errors.New("model.force_balance is on: it chooses experts by a token's place in the batch")
	}
	return m.recipe.CheckDecoding()
}
