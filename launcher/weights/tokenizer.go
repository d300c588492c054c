package weights

// The tokenizer of weights: a file in their folder, or the one that a run's configuration names.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"spmoe/datasets"
)

// Tokenizer opens the tokenizer of the weights. If a Hugging Face folder has none, the error is an
// [fs.ErrNotExist].
func (s *Source) Tokenizer() (datasets.Tokenizer, error) {
	if s.json == nil {
		return datasets.RunTokenizer(tokenizerFolder(s.path), s.tokenizer, s.endToken)
	}
	path := filepath.Join(s.path, datasets.TokenizerFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s has no tokenizer: %w", s.path, err)
	}
	return datasets.OpenTokenizer(path)
}

// ReadTokenizer returns the name of the tokenizer of the weights in the folder path, for
// [datasets.OpenTokenizer], and the end token of a run if its configuration names one. name is
// empty if there is no tokenizer.
func ReadTokenizer(path string) (name, end string, err error) {
	hf, err := isHuggingFace(path)
	if err != nil {
		return "", "", err
	}
	folder := path
	if !hf {
		c, step, err := readCheckpoint(path)
		if err != nil {
			return "", "", err
		}
		folder, name, end = tokenizerFolder(step), c.Tokenizer, c.EndToken
	}
	file := filepath.Join(folder, datasets.TokenizerFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return name, end, nil
	}
	return file, end, nil
}

// tokenizerFolder returns the folder with the tokenizer of a checkpoint, if there is one: the
// checkpoint, or its run.
func tokenizerFolder(step string) string {
	if _, err := os.Stat(filepath.Join(step, datasets.TokenizerFile)); errors.Is(err, fs.ErrNotExist) {
		return filepath.Dir(step)
	}
	return step
}
