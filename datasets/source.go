package datasets

// A source is a list of files, whose documents can be read repeatedly: all at once, or one after
// the other.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// source is what a corpus is read from.
type source struct {
	name  string // for errors
	files []file
	field string // for rows
	rules Rules

	tokenizer Tokenizer // see Options
	keep      func(text []byte) bool

	builtin string // describes the built-in corpus, if this is it
}

// documents calls each with the documents of one file. An unwanted one has no text, because it is
// binary, empty or rejected by the source. Texts of rows are valid during the call.
func (s source) documents(f file, each func(Document) error) error {
	if !f.kind.rows() {
		text, err := f.read()
		if err != nil {
			return err
		}
		if !s.keep(text) {
			text = nil
		}
		return s.divide(Document{Name: f.name, Text: text}, s.rules.byEpochs(), each)
	}
	err := f.eachRow(cmp.Or(s.field, DefaultField), func(r row) error {
		clean, nul := withoutNUL(r.text)
		return s.divide(Document{
			Name:     fmt.Sprintf("%s#%d", f.name, r.number),
			Text:     clean,
			file:     f.name,
			row:      r.number,
			nul:      nul,
			replaced: r.replaced,
		}, false, each)
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.path, err)
	}
	return nil
}

// each calls f with all wanted documents, in the order of the training side of a [Split]. Texts are
// valid during the call.
func (s source) each(ctx context.Context, f func(Document) error) (losses Losses, err error) {
	files := slices.Clone(s.files)
	slices.SortStableFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	for _, in := range files {
		losses.Other += in.others
		err := s.documents(in, func(d Document) error {
			losses.count(d)
			if len(d.Text) == 0 {
				losses.Skipped++
				return nil
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return f(d)
		})
		if err != nil {
			return losses, err
		}
	}
	return losses, nil
}
