package datasets

// Reading documents one after the other, without holding them in memory.

import (
	"context"
	"errors"
	"fmt"
)

// Walk reads the text at paths, as [Open] accepts them, or the built-in corpus if there are none.
// It calls train and heldOut with the texts of each side, one after the other in the order of a
// [Split]. A text is valid during the call. Walk takes the memory of one document plus 16 bytes per
// document.
func Walk(ctx context.Context, paths []string, opts Options, train, heldOut func(text []byte) error) error {
	s, err := openSource(paths, opts)
	if err != nil {
		return err
	}
	_, err = s.divided(ctx, func(TokenizeProgress) {}, func(a, b Document) error {
		return errors.Join(nonEmpty(a.Text, train), nonEmpty(b.Text, heldOut))
	})
	return err
}

func nonEmpty(text []byte, f func(text []byte) error) error {
	if len(text) == 0 {
		return nil
	}
	return f(text)
}

// divided reads all documents twice: to divide them, and to call f with the parts of each on both
// sides. One part may have no text. It returns the number of skipped documents.
func (s source) divided(ctx context.Context, progress func(TokenizeProgress), f func(train, heldOut Document) error) (skipped int, err error) {
	sizes, sides, skipped, err := s.scan(ctx, progress)
	if err != nil {
		return 0, err
	}
	i, done := 0, int64(0)
	_, err = s.each(ctx, func(d Document) error {
		if i >= len(sizes) || int64(len(d.Text)) != sizes[i] {
			return fmt.Errorf("%s has changed while it was read: leave data alone while it is tokenized", d.Name)
		}
		train, heldOut := sides.sides(i, d)
		i++
		done += int64(len(d.Text))
		progress(TokenizeProgress{"tokenizing", done})
		return f(train, heldOut)
	})
	if err == nil && i != len(sizes) {
		err = fmt.Errorf("%s has changed while it was read: leave data alone while it is tokenized", s.name)
	}
	return skipped, err
}
