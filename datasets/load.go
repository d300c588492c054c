package datasets

// The data of a run: text, files of rows, token files, or a mixture of them.

import (
	"errors"
	"fmt"
	"strings"
)

// Data is the training and the validation data of a run.
type Data struct {
	Train, HeldOut Stream
	Counts

	unmap []func() error
}

// Counts are those of the text of a run.
type Counts struct {
	TrainBytes, HeldOutBytes int64 // of text
	Documents                int
	Losses
	Builtin string // see Corpus
}

// add counts documents.
func (c *Counts) add(train, heldOut int64, documents int) {
	c.TrainBytes += train
	c.HeldOutBytes += heldOut
	c.Documents += documents
}

// Load reads the data at paths, or the built-in corpus if there are none. A path is that of a file,
// or of a folder, which is read with its sub-folders; a glob pattern such as c4/*.jsonl.zst; or a
// token file from [WriteTokens] with the same tokenizer.
//
// A file is a document, or several if lines that are <|endoftext|> stand between them, as in
// TinyStories; see [EpochRules]. Some files have one document per row: JSON Lines (.jsonl,
// .jsonlines, .ndjson, .json) and Parquet (.parquet, .pq). Their text is in the string field or
// column that opts names. All of these, and text, may be compressed with gzip (.gz)
// or zstd (.zst). If files of rows have most of the bytes of a folder, only they are read, because
// other files next to them describe them. Otherwise all its texts are read. Rows without text are
// skipped, and NUL bytes in rows are removed.
//
// In a folder, it skips hidden files, binary files (with a NUL byte; it reads the first 8 KB before
// the rest) and anything except regular files. It follows links to files, but not links to folders
// inside a folder, so that a loop of links does no harm. A dangling link is an error. A file that
// is reached twice is read once. Documents are named after the last element of the given path and
// their path below it, so that a corpus keeps its fingerprint when it is moved. Bytes are not
// interpreted: any encoding without NUL is fine.
//
// A path that is missing, unreadable or empty is an error that names it, and so is a binary file
// that is given itself.
//
// PATH@WEIGHT makes a mixture. Then each path is a corpus of its own, with its own validation part,
// and contributes a share of the windows in proportion to its weight, see [Mix]. Its validation
// text is de-duplicated against the training text of all paths, except token files. A token file
// next to other paths needs a weight, too.
func Load(paths []string, t Tokenizer, opts Options) (*Data, error) {
	groups, weights, err := group(paths)
	if err != nil {
		return nil, err
	}
	d := &Data{}
	opts.tokenizer = t
	train, heldOut, err := d.streams(groups, t, opts)
	if err == nil && weights == nil {
		d.Train, d.HeldOut = train[0], heldOut[0]
		return d, nil
	}
	if err == nil {
		d.Train, err = Mix(train, weights, opts.Rules)
	}
	if err == nil {
		d.HeldOut, err = Mix(heldOut, weights, opts.Rules)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// streams returns the streams of each group of paths, from token files or texts, and counts the
// data.
func (d *Data) streams(groups [][]string, t Tokenizer, opts Options) (train, heldOut []Stream, err error) {
	train, heldOut = make([]Stream, len(groups)), make([]Stream, len(groups))
	if opts.Shared != "" {
		if train, heldOut, err = d.openShared(opts.Shared, len(groups)); err != nil {
			return nil, nil, err
		}
		defer func(counts Counts) { d.Counts = counts }(d.Counts)
	}
	var all []texts
	var of []int // the group of each
	for i, g := range groups {
		if train[i].fingerprint != "" {
			continue
		}
		s, err := sourceAt(g, opts)
		if err != nil {
			return nil, nil, err
		}
		tokens, err := s.tokens()
		if tokens != nil {
			d.unmap = append(d.unmap, tokens.unmap)
			train[i], heldOut[i] = tokens.train, tokens.heldOut
			d.add(tokens.bytes[0], tokens.bytes[1], len(tokens.lists[0].Offsets)+len(tokens.lists[1].Offsets)-2)
			err = tokens.fits(t, opts.TokenizerName)
		} else if err == nil {
			var read texts
			read, err = s.texts()
			all, of = append(all, read), append(of, i)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for i, c := range newCorpora(all...) {
		train[of[i]], heldOut[of[i]] = Tokenize(c.Train, t), Tokenize(c.HeldOut, t)
		d.add(c.Train.Bytes(), c.HeldOut.Bytes(), len(c.Train.docs)+len(c.HeldOut.docs))
		d.Losses, d.Builtin = d.Losses.plus(c.Losses), c.Builtin
	}
	return train, heldOut, nil
}

// Check returns the errors of [Load] that show without reading the text: paths that do not exist or
// hold no data, and token files of another tokenizer.
func Check(paths []string, t Tokenizer, opts Options) error {
	return eachSource(paths, opts, func(s source) error {
		tokens, err := s.tokens()
		if err != nil || tokens == nil {
			return err
		}
		return errors.Join(tokens.fits(t, opts.TokenizerName), tokens.unmap())
	})
}

// eachSource lists the files of each corpus at paths, except the built-in one, and calls each with
// them.
func eachSource(paths []string, opts Options, each func(source) error) error {
	groups, _, err := group(paths)
	if err != nil || len(paths) == 0 {
		return err
	}
	for _, g := range groups {
		s, err := find(g, opts)
		if err == nil {
			err = each(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close releases token files. The streams must not be used afterwards. It may be called more than
// once.
func (d *Data) Close() error {
	var all error
	for _, unmap := range d.unmap {
		all = errors.Join(all, unmap())
	}
	d.unmap = nil
	return all
}

// group returns the paths of each corpus, with the weights. Paths without weights form a single
// corpus.
func group(paths []string) (groups [][]string, weights []float64, err error) {
	var bare []string
	for _, p := range paths {
		path, weight, ok := SplitWeight(p)
		if !ok {
			bare = append(bare, p)
			continue
		}
		groups, weights = append(groups, []string{path}), append(weights, weight)
	}
	switch {
	case len(weights) == 0:
		return [][]string{paths}, nil, nil
	case len(bare) > 0:
		return nil, nil, fmt.Errorf("data %q has no weight, but others have: give each one, such as %s@1", bare[0], bare[0])
	}
	for i, w := range weights {
		if !(w > 0 && w <= 1e9) {
			return nil, nil, fmt.Errorf("data %q has weight %v: give a positive number, such as 0.7", groups[i][0], w)
		}
	}
	return groups, weights, nil
}

// tokens returns the token file of a source, or nil if it has none. A token file next to other
// files is an error.
func (s source) tokens() (*tokenFile, error) {
	for _, f := range s.files {
		if f.kind != arrowData || f.packing != unpacked {
			continue
		}
		t, err := openTokens(f.path)
		if err != nil {
			return nil, err
		}
		if len(s.files) > 1 {
			return nil, errors.Join(fmt.Errorf("%s is a token file, but there is other data too: give each path a weight, such as %s@1", f.path, f.path), t.unmap())
		}
		return t, nil
	}
	return nil, nil
}

// sourceAt lists the files at paths, or those of the built-in corpus.
func sourceAt(paths []string, opts Options) (source, error) {
	if len(paths) == 0 {
		return builtinSource(opts)
	}
	return find(paths, opts)
}

// openSource lists the files at paths, or those of the built-in corpus. None may be a token file.
func openSource(paths []string, opts Options) (s source, err error) {
	for _, p := range paths {
		if path, _, ok := SplitWeight(p); ok {
			return s, fmt.Errorf("data %q has a weight, which only training takes: give %s", p, path)
		}
	}
	if s, err = sourceAt(paths, opts); err != nil {
		return s, err
	}
	if t, err := s.tokens(); err != nil || t != nil {
		if err == nil {
			err = errors.Join(fmt.Errorf("%s holds tokens already: expected text", strings.Join(paths, ", ")), t.unmap())
		}
		return s, err
	}
	return s, nil
}
