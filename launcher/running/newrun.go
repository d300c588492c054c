package running

// The settings of a run that may be new. With --init-from it takes the model from those weights:
// flags and the configuration file may repeat the model's settings but must not contradict them.
// Otherwise its vocabulary has the size of its tokenizer.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"spmoe/datasets"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/weights"
	"spmoe/moe"
)

// ResolveNew is resolve for a run that may be new. A run with --init-from takes the model from
// those weights, or from its own checkpoint once it has one, because the weights may be gone by
// then.
func ResolveNew(from cli.Defaults, name string, text []byte, given []cli.Assignment) (config.Config, error) {
	cfg, err := cli.Resolve(from, name, text, given)
	if err != nil {
		return cfg, err
	}
	explicit, err := cli.Explicit(name, text, given)
	if err != nil {
		return cfg, err
	}
	if cfg.InitFrom == "" {
		// Loading the data reports what is wrong with it.
		if name, err := datasets.TokenizerOf(cfg.Data); explicit.Tokenizer == "" && err == nil && name != "" {
			cfg.Tokenizer = name // of a token file
		}
		return cfg, fitVocabulary(&cfg, explicit)
	}
	source, model, tokenizer, err := initialModel(cfg)
	if err != nil {
		return cfg, fmt.Errorf("init_from: %w", err)
	}
	if explicit.Flavor == "" {
		if cfg, err = cli.Resolve(DefaultsOf(model, from), name, text, given); err != nil {
			return cfg, err
		}
	}
	if explicit.Tokenizer == "" && tokenizer.Name != "" {
		cfg.Tokenizer = tokenizer.Name
		cfg.SpecialTokens = cfg.SpecialTokens || tokenizer.SpecialTokens
		if explicit.EndToken == "" {
			cfg.EndToken = tokenizer.EndToken
		}
	}
	ignored := trainingOnly
	if model.IndexHeads == 0 { // the run adds indexers to the weights
		ignored = slices.Concat(ignored, indexerOnly)
	}
	if other := differences(reflect.ValueOf(cfg.Model), reflect.ValueOf(model), "model.", ignored); len(other) > 0 {
		return cfg, fmt.Errorf("the weights in %s have a different model: %s: remove these settings, or start from other weights", source, strings.Join(other, ", "))
	}
	return cfg, nil
}

// DefaultsOf returns defaults for a model that no flavor names: those of the flavor of its size.
func DefaultsOf(model moe.Config, from cli.Defaults) cli.Defaults {
	return func(_ string, steps int) (config.Config, error) {
		cfg, err := from(moe.FlavorLike(model).Name, steps)
		cfg.Model = model
		return cfg, err
	}
}

// initialModel returns the model and the tokenizer of a run's first weights, or of its own
// checkpoint once it has one, and the folder that they come from.
func initialModel(cfg config.Config) (source string, model moe.Config, t weights.TokenizerSettings, err error) {
	if cfg.Out != "" {
		step, text, err := NewestUnverified(cfg.Out)
		if err == nil {
			saved, err := cli.Resolve(cli.TrainDefaults, filepath.Join(step, "config.toml"), text, nil)
			return cfg.Out, saved.Model, weights.TokenizerSettings{Name: saved.Tokenizer, EndToken: saved.EndToken, SpecialTokens: saved.SpecialTokens}, err
		} else if !errors.Is(err, checkpoint.ErrNone) {
			return cfg.Out, model, t, err
		}
	}
	if model, err = weights.ReadConfig(cfg.InitFrom); err == nil {
		t, err = weights.ReadTokenizer(cfg.InitFrom)
	}
	return cfg.InitFrom, model, t, err
}

// trainingOnly are the model settings that do not affect the weights.
var trainingOnly = []string{
	"model.force_balance", "model.bias_speed", "model.balance_alpha", "model.mtp_weight", "model.max_positions",
	"model.index_top_k", "model.index_stage", "model.index_weight",
}

// indexerOnly are the model settings that affect the weights of indexers only.
var indexerOnly = []string{"model.index_heads", "model.index_dim", "model.index_rope", "model.indexer_types"}

// differences lists the settings in which two models differ, for an error message.
func differences(got, want reflect.Value, prefix string, ignored []string) (all []string) {
	for i := range got.NumField() {
		name := prefix + got.Type().Field(i).Tag.Get("toml")
		a := got.Field(i)
		b := want.Field(i)
		switch {
		case slices.Contains(ignored, name):
		case a.Kind() == reflect.Struct:
			all = append(all, differences(a, b, name+".", ignored)...)
		case !a.Equal(b):
			all = append(all, fmt.Sprintf("%s is %v there and %v here", name, b, a))
		}
	}
	return all
}

// PrintBuiltinText says which text a command without --data reads.
func PrintBuiltinText(out io.Writer, data []string) {
	if len(data) == 0 {
		fmt.Fprintf(out, "text: %s\n", datasets.DescribeBuiltin())
	}
}

// vocabularyMultiple is the multiple that a vocabulary size is rounded up to, as in Megatron.
// Matrices of such sizes multiply fast, and ranks divide them evenly.
const vocabularyMultiple = 64

// fitVocabulary sets end_token to what the files next to the tokenizer say, and model.vocab to the
// size of the tokenizer, rounded up, unless they are explicit. The byte tokenizer keeps the
// flavor's size. A rank that joins late may find only the run's copy of the tokenizer.
func fitVocabulary(cfg *config.Config, explicit config.Config) error {
	if cfg.Tokenizer == "" || cfg.Tokenizer == (datasets.Bytes{}).Name() {
		return nil
	}
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
