package weights

// The tokenizer that goes with weights: a file in their folder, or what a run's configuration
// names.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"spmoe/datasets"
)

// Tokenizer opens the tokenizer that goes with the weights. That a Hugging Face folder has none is
// an [fs.ErrNotExist].
func (s *Source) Tokenizer() (datasets.Tokenizer, error) {
	if s.json == nil {
		return datasets.RunTokenizer(tokenizerFolder(s.path), s.tokenizer)
	}
	path := filepath.Join(s.path, datasets.TokenizerFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s has no tokenizer: %w", s.path, err)
	}
	return datasets.OpenTokenizer(path)
}

// ReadTokenizer returns the name by which [datasets.OpenTokenizer] knows the tokenizer that goes
// with the weights in the folder path; empty if there is none.
func ReadTokenizer(path string) (string, error) {
	hf, err := isHuggingFace(path)
	if err != nil {
		return "", err
	}
	folder, name := path, ""
	if !hf {
		c, step, err := readCheckpoint(path)
		if err != nil {
			return "", err
		}
		folder, name = tokenizerFolder(step), c.Tokenizer
	}
	file := filepath.Join(folder, datasets.TokenizerFile)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return name, nil
	}
	return file, nil
}

// tokenizerFolder is the folder that holds the tokenizer of a checkpoint, if one does: it, or that
// of its run.
func tokenizerFolder(step string) string {
	if _, err := os.Stat(filepath.Join(step, datasets.TokenizerFile)); errors.Is(err, fs.ErrNotExist) {
		return filepath.Dir(step)
	}
	return step
}
