package datasets

// Descriptions of data: the amounts of each source.

import (
	"bytes"
	"context"
)

// Inspection describes one source.
type Inspection struct {
	Source    string  `json:"source"`
	Weight    float64 `json:"weight,omitempty"` // in a mixture
	Tokenizer string  `json:"tokenizer"`
	Files     int     `json:"files"`
	Documents int     `json:"documents"`
	Losses
	Bytes  int64 `json:"bytes"`  // of text
	Tokens int64 `json:"tokens"` // including those that end documents
}

// Inspect reads the data at paths, as [Load] does, and describes each path separately; without
// paths it describes the built-in corpus.
func Inspect(ctx context.Context, paths []string, t Tokenizer, opts Options) (all []Inspection, err error) {
	if _, _, err := group(paths); err != nil {
		return nil, err
	}
	opts.tokenizer = t
	if len(paths) == 0 {
		s, err := openSource(nil, opts)
		if err != nil {
			return nil, err
		}
		one, err := s.inspect(ctx, t)
		return []Inspection{one}, err
	}
	for _, given := range paths {
		path, weight, _ := SplitWeight(given)
		s, err := find([]string{path}, opts)
		if err != nil {
			return nil, err
		}
		tokens, err := s.tokens()
		if err != nil {
			return nil, err
		}
		var one Inspection
		if tokens != nil {
			one, err = tokens.inspect(), tokens.unmap()
		} else {
			one, err = s.inspect(ctx, t)
		}
		if err != nil {
			return nil, err
		}
		one.Weight = weight
		all = append(all, one)
	}
	return all, nil
}

// inspect describes a token file.
func (f *tokenFile) inspect() Inspection {
	return Inspection{
		Source: f.path, Tokenizer: f.tokenizer, Files: 1, Documents: f.documents(),
		Bytes: f.bytes[0] + f.bytes[1], Tokens: f.train.Len() + f.heldOut.Len(),
	}
}

// inspect reads all text of a source and describes it.
func (s source) inspect(ctx context.Context, t Tokenizer) (one Inspection, err error) {
	one = Inspection{Source: s.name, Tokenizer: t.Name(), Files: len(s.files)}
	pending, size := [][]byte(nil), 0
	encode := func() {
		for _, ids := range encodeAll(t, pending) {
			one.Tokens += int64(len(ids))
		}
		pending, size = pending[:0], 0
	}
	one.Losses, err = s.each(ctx, func(d Document) error {
		one.Documents++
		one.Bytes += int64(len(d.Text))
		pending = append(pending, append(bytes.Clone(d.Text), separator))
		if size += len(d.Text); size >= encodeAhead {
			encode()
		}
		return nil
	})
	if err == nil && one.Documents == 0 {
		err = s.noText(one.Losses)
	}
	encode()
	return one, err
}
