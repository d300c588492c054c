package main

// data train-tokenizer: a byte-level BPE of the user's own text.

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
	"spmoe/launcher/system"
)

// trainTokenizer trains a tokenizer on the training side of the data, and tells how it does on the
// other. It holds the words that the text has, not the text.
func (f *dataFlags) trainTokenizer(ctx context.Context, env env) error {
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
		return failure{err, exitFailed}
	}
	if t.VocabSize() < f.vocab {
		fmt.Fprintf(env.errOut, "launcher: warning: the text has no more than %d tokens that occur twice: give more text, or a smaller --vocab\n", t.VocabSize())
	}
	fmt.Fprintf(env.out, "%s: %d tokens, from %s of text in %s; %.3f bytes a token of held-out text\n",
		f.out, t.VocabSize(), system.Bytes(text.bytes), took.Round(10*time.Millisecond), float64(len(text.heldOut))/float64(max(len(t.Encode(text.heldOut)), 1)))
	return nil
}

// judgedBytes is how much held-out text is kept to judge a tokenizer by.
const judgedBytes = 8 << 20

// tokenizerText is what a tokenizer is trained on and judged by.
type tokenizerText struct {
	bytes   int64 // of the training text
	heldOut []byte
	err     error // why it ended early
}

// training yields the training documents of the data that f names, and keeps held-out ones.
func (x *tokenizerText) training(ctx context.Context, f *dataFlags) iter.Seq[[]byte] {
	errEnough := errors.New("enough")
	return func(yield func([]byte) bool) {
		x.err = datasets.Walk(ctx, f.data, datasets.Options{Field: f.field}, func(text []byte) error {
			if x.bytes += int64(len(text)); !yield(text) {
				return errEnough
			}
			return nil
		}, func(text []byte) error {
			x.heldOut = append(x.heldOut, text[:min(len(text), judgedBytes-len(x.heldOut))]...)
			return nil
		})
		if errors.Is(x.err, errEnough) {
			x.err = nil
		}
	}
}
