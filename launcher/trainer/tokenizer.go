package trainer

// The run's tokenizer: where it comes from, the run's copy of it, and the bytes that its tokens
// stand for.

import (
	"fmt"
	"os"
	"path/filepath"

	"spmoe/datasets"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
)

// openTokenizer opens the tokenizer that the configuration names. A running job has its own copy in
// folder, which is empty for a new run.
func (j *Job) openTokenizer(folder string) (err error) {
	name := j.cfg.Tokenizer
	if folder == "" {
		j.tokenizer, err = datasets.NewTokenizer(name, j.cfg.EndToken)
	} else {
		j.tokenizer, err = datasets.RunTokenizer(folder, name, j.cfg.EndToken)
	}
	if err != nil {
		return err
	}
	if j.cfg.SpecialTokens {
		if err := datasets.TakeSpecial(j.tokenizer); err != nil {
			return err
		}
	}
	if folder == "" {
		j.cfg.EndToken, j.cfg.SpecialTokens = datasets.EndOf(j.tokenizer).Setting, datasets.TakesSpecial(j.tokenizer)
	}
	if err := Holds(j.cfg, j.tokenizer); err != nil {
		return err
	}
	if j.tokenizerFile, err = datasets.TokenizerCopy(j.tokenizer, name); err != nil {
		return err
	}
	if j.tokenizerFile != nil {
		if err := j.Folder.Check(); err != nil {
			return err
		}
	}
	j.tokenBytes = make([]int32, j.tokenizer.VocabSize())
	for id := range j.tokenBytes {
		j.tokenBytes[id] = int32(len(j.tokenizer.Decode([]int32{int32(id)})))
	}
	return nil
}

// Holds returns an error if a tokenizer has more tokens than the model.
func Holds(c config.Config, t datasets.Tokenizer) error {
	if size := t.VocabSize(); c.Model.Vocab < size {
		return fmt.Errorf("model.vocab is %d: tokenizer %q has %d tokens: leave it out, or give at least as many", c.Model.Vocab, c.Tokenizer, size)
	}
	return nil
}

// describeTokenizer names the tokenizer, its size and what ends documents.
func (j *Job) describeTokenizer() string {
	end := datasets.EndOf(j.tokenizer)
	text := fmt.Sprintf("%s, %d tokens; documents end with %s (%d)", j.cfg.Tokenizer, j.tokenizer.VocabSize(), end.Text, end.ID)
	if end.From != "" {
		text += ", " + end.From
	}
	return text
}

// copyTokenizer copies the tokenizer to the run's folder, for generation, evaluation and
// replacement ranks.
func (j *Job) copyTokenizer() error {
	if err := j.Folder.Check(); err != nil {
		return err
	}
	path := filepath.Join(j.cfg.Out, datasets.TokenizerFile)
	if j.tokenizerFile != nil {
		return system.WriteFile(path, j.tokenizerFile)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err // of a run that ended before its first checkpoint
	}
	return nil
}

// bytesOf returns the bytes of text that tokens stand for. Negative ids, of targets that do not
// count, have no bytes.
func (j *Job) bytesOf(tokens []int32) (n int64) {
	for _, id := range tokens {
		if uint(id) < uint(len(j.tokenBytes)) {
			n += int64(j.tokenBytes[id])
		}
	}
	return n
}

// trainingWindows is the number of windows of the training text that the bytes per token are
// measured on.
const trainingWindows = 256

// bytesPerToken returns the mean over windows that are spread over the training text.
func (j *Job) bytesPerToken() (float64, error) {
	w, err := datasets.NewWindows(j.train, datasets.WindowsConfig{Seq: j.cfg.Seq, Count: trainingWindows, Ranks: 1})
	if err != nil {
		return 0, err
	}
	row := make([]int32, j.cfg.Seq+1)
	var n int64
	for range w.All(row) {
		n += j.bytesOf(row[1:])
	}
	return float64(n) / float64(w.Len()*j.cfg.Seq), nil
}
