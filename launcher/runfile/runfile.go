// Package runfile reads a TOML file that describes a whole run, from a corpus to an exported model,
// with what the run is expected to reach.
package runfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"spmoe/datasets"
	"spmoe/datasets/bpe"
	"spmoe/internal/stricttoml"
	"spmoe/launcher/trainer"
)

// File is a run file.
type File struct {
	Out       string         `toml:"out"`   // folder of the run
	Ranks     int            `toml:"ranks"` // that train and evaluate
	Corpus    Corpus         `toml:"corpus"`
	Tokenizer Tokenizer      `toml:"tokenizer"`
	Train     trainer.Config `toml:"train"` // only the keys that the file sets
	Eval      Eval           `toml:"eval"`
	Sample    Sample         `toml:"sample"`
	Export    Export         `toml:"export"`
	Expected  Expected       `toml:"expected"`
}

// Corpus is the text to train on.
type Corpus struct {
	Data  []string `toml:"data"`  // files, folders and globs; none: the built-in text
	Field string   `toml:"field"` // with the text in JSONL, Parquet and Arrow files
}

// Tokenizer is the tokenizer to train.
type Tokenizer struct {
	Vocab int `toml:"vocab"`
}

// Eval is the measurement of the trained model.
type Eval struct {
	MaxTokens int `toml:"max_tokens"` // -1: all validation text
}

// Sample is the text that the trained model generates.
type Sample struct {
	Prompts     []string `toml:"prompts"`
	MaxTokens   int      `toml:"max_tokens"` // per prompt
	Temperature float64  `toml:"temperature"`
	Seed        uint64   `toml:"seed"`
}

// Export is the exported model.
type Export struct {
	DType string `toml:"dtype"` // of its weights
}

// defaults returns the values of keys that a file does not set.
func defaults() File {
	return File{
		Ranks: 1, Corpus: Corpus{Field: datasets.DefaultField}, Tokenizer: Tokenizer{8192}, Eval: Eval{-1},
		Sample: Sample{MaxTokens: 200, Temperature: 0.7, Seed: 1}, Export: Export{"bf16"}, Expected: Expected{Tolerance: 1},
	}
}

// Parse returns the file with a text. train is the text of its section train, in the format of
// train --config.
func Parse(text []byte) (f File, train []byte, err error) {
	f = defaults()
	if err := stricttoml.Unmarshal(text, &f); err != nil {
		return f, nil, err
	}
	if err := f.check(); err != nil {
		return f, nil, err
	}
	var sections struct {
		Train map[string]any `toml:"train"`
	}
	if err := toml.Unmarshal(text, &sections); err != nil {
		return f, nil, err
	}
	train, err = toml.Marshal(sections.Train)
	return f, train, err
}

// check returns an error with every value that no run can have. Package trainer checks those of
// train.
func (f File) check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(f.Out != "", "out is empty: give a folder, such as runs/night")
	must(f.Ranks >= 1, "ranks is %d: give 1 or more", f.Ranks)
	must(f.Tokenizer.Vocab >= bpe.MinVocab && f.Tokenizer.Vocab <= bpe.MaxVocab, "tokenizer.vocab is %d: give %d to %d", f.Tokenizer.Vocab, bpe.MinVocab, bpe.MaxVocab)
	must(f.Eval.MaxTokens == -1 || f.Eval.MaxTokens >= 1, "eval.max_tokens is %d: give 1 or more tokens, or -1 for all", f.Eval.MaxTokens)
	must(f.Sample.MaxTokens >= 1, "sample.max_tokens is %d: give 1 or more", f.Sample.MaxTokens)
	must(f.Sample.Temperature >= 0, "sample.temperature is %g: give 0 (the best token) or more", f.Sample.Temperature)
	must(!slices.Contains(f.Sample.Prompts, ""), "sample.prompts has an empty prompt: give text to continue")
	must(slices.Contains([]string{"bf16", "fp32"}, f.Export.DType), "export.dtype is %q: use bf16 or fp32", f.Export.DType)
	for key, instead := range map[string]string{
		"Data": "give corpus.data", "DataField": "give corpus.field", "Tokenizer": "the run trains one, give tokenizer.vocab", "Out": "give out at the top",
	} {
		field, _ := reflect.TypeFor[trainer.Config]().FieldByName(key)
		must(reflect.ValueOf(f.Train).FieldByName(key).IsZero(), "train.%s is set by the run: %s", stricttoml.Key(field), instead)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(append(errs, f.Expected.check())...)
}
