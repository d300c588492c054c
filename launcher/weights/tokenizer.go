package weights

// The tokenizer of weights: a file in their folder, or the one that a run's configuration names.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"spmoe/datasets"
)

// TokenizerSettings are the tokenizer of weights, and how their run has used it.
type TokenizerSettings struct {
	Name          string // for [datasets.OpenTokenizer]; empty: there is none
	EndToken      string // if the configuration of the run names one
	SpecialTokens bool   // the run has taken special tokens in text
}

// ReadTokenizer returns the tokenizer of the weights in the folder path.
func ReadTokenizer(path string) (t TokenizerSettings, err error) {
	hf, err := isHuggingFace(path)
	if err != nil {
		return t, err
	}
	folder := path
	if !hf {
		c, step, err := readCheckpoint(path)
		if err != nil {
			return t, err
		}
		folder, t = tokenizerFolder(step), TokenizerSettings{c.Tokenizer, c.EndToken, c.SpecialTokens}
	}
	file := filepath.Join(folder, datasets.TokenizerFile)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Name = file
	}
	return t, nil
}

// tokenizerFolder returns the folder with the tokenizer of a checkpoint, if there is one: the
// checkpoint, or its run.
func tokenizerFolder(step string) string {
	if _, err := os.Stat(filepath.Join(step, datasets.TokenizerFile)); errors.Is(err, fs.ErrNotExist) {
		return filepath.Dir(step)
	}
	return step
}
