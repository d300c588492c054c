package main

// The vocabulary of a model is that of its tokenizer, unless somebody says otherwise.

import (
	"errors"
	"io/fs"

	"spmoe/datasets"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/trainer"
)

// vocabularyMultiple is what a vocabulary is rounded up to, as in Megatron: matrices of such sizes
// multiply well, and ranks divide them.
const vocabularyMultiple = 64

// fitVocabulary sets model.vocab to the size of the tokenizer, rounded up, where neither the
// configuration file nor a flag gives it. The byte tokenizer leaves the flavor's. A rank that comes
// late may find the run's copy of the tokenizer only.
func fitVocabulary(cfg *trainer.Config, text []byte, given []assignment) error {
	if cfg.Tokenizer == "" || cfg.Tokenizer == (datasets.Bytes{}).Name() {
		return nil
	}
	var explicit trainer.Config
	if err := stricttoml.Unmarshal(text, &explicit); err != nil {
		return err
	}
	apply(&explicit, given)
	t, err := datasets.OpenTokenizer(cfg.Tokenizer)
	if errors.Is(err, fs.ErrNotExist) && cfg.Out != "" {
		t, err = datasets.RunTokenizer(cfg.Out, cfg.Tokenizer)
	}
	if err != nil {
		return err
	}
	if explicit.Model.Vocab != 0 {
		return cfg.Holds(t)
	}
	cfg.Model.Vocab = (t.VocabSize() + vocabularyMultiple - 1) / vocabularyMultiple * vocabularyMultiple
	return nil
}
