package datasets

// Reading documents one after the other, without holding training text in memory.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Walk reads the text at paths, as [Load] accepts them, or the built-in corpus if there are none.
// It calls train with the texts of the training side, one after the other in the order of a
// [Split], and then heldOut with those of the other side. A text is valid during the call. Walk
// takes the memory of one document, of the validation text with an index of it, and 16 bytes per
// document.
func Walk(ctx context.Context, paths []string, opts Options, train, heldOut func(text []byte) error) error {
	s, err := openSource(paths, opts)
	if err != nil {
		return err
	}
	all, _, err := s.divided(ctx, func(string, int64) {}, func(d Document) error { return train(d.Text) })
	for _, h := range all {
		err = errors.Join(err, heldOut(h.Text))
	}
	return err
}

// divided reads all documents three times: to divide them, for the validation documents, which it
// returns de-duplicated, and to call train with the training documents in the order of a [Split].
// Documents that change meanwhile are an error.
func (s source) divided(ctx context.Context, progress TokenizeProgress, train func(Document) error) (heldOut []Document, losses Losses, err error) {
	sizes, sides, losses, err := s.scan(ctx, progress)
	if err != nil {
		return nil, losses, err
	}
	err = s.again(ctx, sizes, sides, func(_, out Document, _ int64) error {
		if len(out.Text) > 0 {
			out.Text = bytes.Clone(out.Text)
			heldOut = append(heldOut, out)
		}
		return nil
	})
	if err != nil {
		return nil, losses, err
	}
	slices.SortStableFunc(heldOut, Document.compare)
	index := newOverlapIndex(heldOut)
	err = s.again(ctx, sizes, sides, func(part, _ Document, done int64) error {
		if len(part.Text) == 0 {
			return nil
		}
		index.add(part.Text)
		progress("tokenizing", done)
		return train(part)
	})
	if err != nil {
		return nil, losses, err
	}
	return index.clean(heldOut), losses, nil
}

// again reads the documents of a scan again, and calls f with the parts of each on both sides.
func (s source) again(ctx context.Context, sizes []int64, sides division, f func(train, heldOut Document, done int64) error) error {
	i, done := 0, int64(0)
	_, err := s.each(ctx, func(d Document) error {
		if i >= len(sizes) || int64(len(d.Text)) != sizes[i] {
			return fmt.Errorf("%s has changed while it was read: leave data alone while it is read", d.Name)
		}
		train, heldOut := sides.sides(i, d)
		i++
		done += int64(len(d.Text))
		return f(train, heldOut, done)
	})
	if err == nil && i != len(sizes) {
		err = fmt.Errorf("%s has changed while it was read: leave data alone while it is read", s.name)
	}
	return err
}
