package running

// A run's tokenizer, which a token file brings along, and its vocabulary size: that of the
// tokenizer. Either may be set explicitly.

import (
	"errors"
	"io/fs"

	"spmoe/datasets"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/cli"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
)

// vocabularyMultiple is the multiple that a vocabulary size is rounded up to, as in Megatron.
// Matrices of such sizes multiply fast, and ranks divide them evenly.
const vocabularyMultiple = 64

// takeTokenizer sets the tokenizer to that of the token file among the data, unless the
// configuration file or a flag sets it.
func takeTokenizer(cfg *config.Config, text []byte, given []cli.Assignment) error {
	var explicit config.Config
	if err := stricttoml.Unmarshal(text, &explicit); err != nil {
		return err
	}
	if cli.Apply(&explicit, given); explicit.Tokenizer != "" {
		return nil
	}
	// Loading the data reports what is wrong with it.
	if name, err := datasets.TokenizerOf(cfg.Data); err == nil && name != "" {
		cfg.Tokenizer = name
	}
	return nil
}

// fitVocabulary sets end_token to what the files next to the tokenizer say, and model.vocab to the
// size of the tokenizer, rounded up, unless the configuration file or a flag sets them. The byte
// tokenizer keeps the flavor's size. A rank that joins late may find only the run's copy of the
// tokenizer.
func fitVocabulary(cfg *config.Config, text []byte, given []cli.Assignment) error {
	if cfg.Tokenizer == "" || cfg.Tokenizer == (datasets.Bytes{}).Name() {
		return nil
	}
	var explicit config.Config
	if err := stricttoml.Unmarshal(text, &explicit); err != nil {
		return err
	}
	cli.Apply(&explicit, given)
	t, err := datasets.NewTokenizer(cfg.Tokenizer, cfg.EndToken)
	if errors.Is(err, fs.ErrNotExist) && cfg.Out != "" {
		t, err = datasets.RunTokenizer(cfg.Out, cfg.Tokenizer, cfg.EndToken)
	}
	if err != nil {
		return err
	}
	if cfg.EndToken = datasets.EndOf(t).Setting; datasets.TakesSpecial(t) {
		cfg.SpecialTokens = true // of a token file
	}
	if explicit.Model.Vocab != 0 {
		return trainer.Holds(*cfg, t)
	}
	cfg.Model.Vocab = (t.VocabSize() + vocabularyMultiple - 1) / vocabularyMultiple * vocabularyMultiple
	return nil
}
