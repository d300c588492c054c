package datasets

// Descriptions of data: statistics of each source, and the beginnings of some documents.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Inspection describes one source. Lengths are bytes of text, or tokens for a token file.
type Inspection struct {
	Source    string  `json:"source"`
	Weight    float64 `json:"weight,omitempty"` // in a mixture
	Tokenizer string  `json:"tokenizer"`
	Files     int     `json:"files"`
	Documents int     `json:"documents"`
	Losses
	Bytes         int64     `json:"bytes"`
	Tokens        int64     `json:"tokens"` // including those that end documents
	BytesPerToken float64   `json:"bytes_per_token"`
	Unit          string    `json:"length_unit"` // "bytes" or "tokens"
	Lengths       Quantiles `json:"lengths"`
	Duplicates    int       `json:"duplicates"`        // documents that equal an earlier one
	HeldOut       float64   `json:"held_out"`          // validation share of the text, or of the tokens
	Overlap       *Overlap  `json:"overlap,omitempty"` // nil: of a token file nothing is known
	Samples       []Sample  `json:"samples"`
}

// Quantiles are the lengths of the shortest and the longest document and of some in between.
type Quantiles struct {
	Min    int64 `json:"min"`
	P10    int64 `json:"p10"`
	Median int64 `json:"median"`
	P90    int64 `json:"p90"`
	P99    int64 `json:"p99"`
	Max    int64 `json:"max"`
}

// Sample is the beginning of a document.
type Sample struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// sampleBytes is the length of a sample.
const sampleBytes = 400

// Inspect reads the data at paths, as [Load] does, and describes each path separately; without
// paths it describes the built-in corpus. For each it returns the beginnings of up to samples
// documents, selected by the hash of their names. It takes 24 bytes of memory per document, and the
// validation text with an index of it.
func Inspect(ctx context.Context, paths []string, t Tokenizer, opts Options, samples int) ([]Inspection, error) {
	if _, _, err := group(paths); err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		one, err := inspect(ctx, nil, t, opts, samples)
		return []Inspection{one}, err
	}
	var all []Inspection
	for _, given := range paths {
		path, weight, _ := SplitWeight(given)
		one, err := inspect(ctx, []string{path}, t, opts, samples)
		if err != nil {
			return nil, err
		}
		one.Weight = weight
		all = append(all, one)
	}
	return all, nil
}

func inspect(ctx context.Context, paths []string, t Tokenizer, opts Options, samples int) (one Inspection, err error) {
	opts.tokenizer = t
	if len(paths) > 0 {
		s, err := find(paths, opts)
		if err != nil {
			return one, err
		}
		if tokens, err := s.tokens(); err != nil {
			return one, err
		} else if tokens != nil {
			one, err := tokens.inspect(t, samples)
			return one, errors.Join(err, tokens.unmap())
		}
	}
	s, err := openSource(paths, opts)
	if err != nil {
		return one, err
	}
	c := newCensus(samples)
	pending, size := [][]byte(nil), 0
	encode := func() {
		for _, ids := range encodeAll(t, pending) {
			c.tokens += int64(len(ids))
		}
		pending, size = pending[:0], 0
	}
	var hashes []uint64
	losses, err := s.each(ctx, func(d Document) error {
		c.add(d.Name, int64(len(d.Text)), d.Text, func() string { return beginning(d.Text) })
		hashes = append(hashes, s.rules.hash(d))
		pending = append(pending, append(bytes.Clone(d.Text), separator))
		if size += len(d.Text); size >= encodeAhead {
			encode()
		}
		return nil
	})
	if err != nil {
		return one, err
	}
	encode()
	if len(hashes) == 0 {
		return one, s.noText(0, losses)
	}
	sides, err := s.rules.divide(c.lengths, hashes)
	if err != nil {
		return one, fmt.Errorf("%s: %w", s.name, err)
	}
	_, overlap, err := s.deduplicated(ctx, c.lengths, sides, func(Document, int64) error { return nil })
	if err != nil {
		return one, err
	}
	one = c.inspection()
	one.Source, one.Files, one.Losses, one.Bytes, one.Unit, one.Tokenizer = s.name, len(s.files), losses, c.total, "bytes", t.Name()
	slices.Sort(c.lengths)
	one.Lengths = quantiles(c.lengths)
	one.Overlap, one.HeldOut = &overlap, float64(overlap.HeldOut)/float64(c.total)
	one.BytesPerToken = float64(one.Bytes) / float64(max(one.Tokens, 1))
	return one, nil
}

// inspect describes a token file.
func (f *tokenFile) inspect(t Tokenizer, samples int) (Inspection, error) {
	c := newCensus(samples)
	for side, l := range f.lists {
		stream := []Stream{f.train, f.heldOut}[side]
		for i := range len(l.Offsets) - 1 {
			from, to := l.Offsets[i], l.Offsets[i+1]
			ids := make([]int32, to-from)
			if err := stream.copyIDs(ids, from); err != nil {
				return Inspection{}, err
			}
			raw := make([]byte, 0, 4*len(ids))
			for _, id := range ids {
				raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
			}
			c.add(fmt.Sprintf("%s document %d", []string{"training", "validation"}[side], i+1), to-from, raw, func() string {
				if f.fits(t, "") != nil {
					return fmt.Sprintf("%d", ids[:min(len(ids), sampleBytes/8)])
				}
				return beginning(bytes.TrimSuffix(t.Decode(ids[:min(len(ids), sampleBytes)]), []byte{separator}))
			})
		}
	}
	one := c.inspection()
	one.Source, one.Files, one.Unit, one.Tokenizer = f.path, 1, "tokens", f.tokenizer
	one.Tokens, one.Bytes = f.train.Len()+f.heldOut.Len(), f.bytes[0]+f.bytes[1]
	slices.Sort(c.lengths)
	one.Lengths = quantiles(c.lengths)
	one.HeldOut = float64(f.heldOut.Len()) / float64(max(one.Tokens, 1))
	one.BytesPerToken = float64(one.Bytes) / float64(max(one.Tokens, 1))
	return one, nil
}

// census counts documents.
type census struct {
	lengths       []int64
	seen          map[uint64]struct{} // first bytes of the SHA-256 of documents
	duplicates    int
	total, tokens int64
	samples       []sampled // by hash, at most the requested number
	most          int
}

type sampled struct {
	hash uint64
	Sample
}

func newCensus(samples int) *census { return &census{seen: map[uint64]struct{}{}, most: samples} }

// add counts a document. show returns its beginning, if it is needed.
func (c *census) add(name string, length int64, content []byte, show func() string) {
	c.lengths = append(c.lengths, length)
	c.total += length
	sum := sha256.Sum256(content)
	key := binary.LittleEndian.Uint64(sum[:])
	if _, ok := c.seen[key]; ok {
		c.duplicates++
	}
	c.seen[key] = struct{}{}
	s := sampled{hash: nameHash(name)}
	at, _ := slices.BinarySearchFunc(c.samples, s, func(a, b sampled) int { return cmp.Compare(a.hash, b.hash) })
	if at >= c.most {
		return
	}
	s.Sample = Sample{name, show()}
	c.samples = slices.Insert(c.samples, at, s)
	c.samples = c.samples[:min(len(c.samples), c.most)]
}

func (c *census) inspection() Inspection {
	one := Inspection{Documents: len(c.lengths), Duplicates: c.duplicates, Tokens: c.tokens, Samples: []Sample{}}
	for _, s := range c.samples {
		one.Samples = append(one.Samples, s.Sample)
	}
	return one
}

// quantiles returns the quantiles of sorted lengths: the smallest length that a share of the
// documents does not exceed.
func quantiles(sorted []int64) Quantiles {
	if len(sorted) == 0 {
		return Quantiles{}
	}
	at := func(percent int) int64 { return sorted[max((len(sorted)*percent+99)/100-1, 0)] }
	return Quantiles{Min: sorted[0], P10: at(10), Median: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

// beginning returns the first characters of a text.
func beginning(text []byte) string {
	return strings.ToValidUTF8(string(text[:min(len(text), sampleBytes)]), "\ufffd")
}
