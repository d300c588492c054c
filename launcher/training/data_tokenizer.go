package training

// data train-tokenizer: train a byte-level BPE on the user's own text.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"time"

	"spmoe/datasets"
	"spmoe/datasets/bpe"
	"spmoe/launcher/cli"
	"spmoe/launcher/system"
)

// trainTokenizer trains a tokenizer on the training text of the data and measures it on validation
// text. It holds the distinct words of the training text in memory, not the text.
func (f *dataFlags) trainTokenizer(ctx context.Context, env cli.Env) error {
	if f.out == "" {
		return fmt.Errorf("data train-tokenizer needs --out FILE, such as --out %s", datasets.TokenizerFile)
	}
	if _, err := os.Lstat(f.out); err == nil {
		return fmt.Errorf("--out %s exists already: give a new file", f.out)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.vocab < bpe.MinVocab || f.vocab > bpe.MaxVocab {
		return fmt.Errorf("--vocab is %d: give %d (no merges) to %d", f.vocab, bpe.MinVocab, bpe.MaxVocab)
	}
	begin := time.Now()
	var text tokenizerText
	t, err := bpe.Train(ctx, text.training(ctx, f), f.vocab)
	if err = cmp.Or(text.err, err); err != nil {
		return err
	}
	took := time.Since(begin)
	file, err := t.JSON()
	if err != nil {
		return err
	}
	if err := system.WriteFile(f.out, file); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	if t.VocabSize() < f.vocab {
		fmt.Fprintf(env.ErrOut, "launcher: warning: only %d tokens occur at least twice in the text: give more text, or a smaller --vocab\n", t.VocabSize())
	}
	fmt.Fprintf(env.Out, "%s: %d tokens, from %s of text in %s; %.3f bytes/token of validation text\n",
		f.out, t.VocabSize(), system.Bytes(text.bytes), took.Round(10*time.Millisecond), float64(len(text.validation))/float64(max(len(t.Encode(text.validation)), 1)))
	return nil
}

// mostValidationBytes bounds the validation text that measures a tokenizer.
const mostValidationBytes = 8 << 20

// tokenizerText is the text that trains and measures a tokenizer.
type tokenizerText struct {
	bytes      int64 // of the training text
	validation []byte
	err        error // the error that ended reading early
}

// training yields the training documents of --data and collects validation text on the way.
func (x *tokenizerText) training(ctx context.Context, f *dataFlags) iter.Seq[[]byte] {
	errEnough := errors.New("enough")
	return func(yield func([]byte) bool) {
		x.err = datasets.Walk(ctx, f.data, f.options(), func(text []byte) error {
			if x.bytes += int64(len(text)); !yield(text) {
				return errEnough
			}
			return nil
		}, func(text []byte) error {
			x.validation = append(x.validation, text[:min(len(text), mostValidationBytes-len(x.validation))]...)
			return nil
		})
		if errors.Is(x.err, errEnough) {
			x.err = nil
		}
	}
}
