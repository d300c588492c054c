package datasets

// Reading the files of a corpus: several at a time, in an order that does not depend on the
// machine, up to a cap.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"
)

const (
	sniffBytes  = 8 << 10 // looked at before the rest of a file is read
	mostTrusted = 1 << 20 // bytes that memory is taken for because a file claims to have them
	mostGrowth  = 1 << 20 // bytes that a file may have beyond its size: it is being written, or does not know
	readers     = 8       // files read at a time: enough to hide the latency of a disk
)

// errBinary says that a file holds the separator, which no text does.
var errBinary = errors.New("not plain text (it has a NUL byte)")

// file is a document, or a file with one a row, that has not been read yet.
type file struct {
	name    string // name of the document, or the beginning of those of its rows
	path    string
	size    int64
	given   bool // named by the user: being empty or binary is an error, not a reason to pass it over
	kind    kind
	packing packing
}

// read returns the text of f, or nil where a file that the user did not name is binary.
func (f file) read() ([]byte, error) {
	var text []byte
	var err error
	if f.packing == unpacked {
		text, err = readText(f.path, f.size)
	} else {
		text, err = f.readPacked()
	}
	switch {
	case errors.Is(err, errBinary) && !f.given:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w: expected readable text files or folders of them", f.path, err)
	case len(text) == 0 && f.given:
		return nil, fmt.Errorf("%s is empty: expected a file of text, JSONL, Parquet or Arrow, or a folder of them", f.path)
	}
	return text, nil
}

// readText returns what the file at path holds, which had size bytes when it was found, or
// errBinary. Memory is taken as text comes: a file may claim any size, and have holes, which are
// bytes of zero.
func readText(path string, size int64) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, 0, min(size, mostTrusted)+1)
	for next := sniffBytes; int64(len(text)) <= size+mostGrowth; next = max(sniffBytes, len(text), cap(text)-len(text)) {
		at, room := len(text), next
		if left := size + 1 - int64(at); left > 0 {
			room = int(min(int64(room), left))
		}
		text = slices.Grow(text, room)
		n, err := io.ReadFull(f, text[at:at+room])
		text = text[:at+n]
		switch {
		case bytes.IndexByte(text[at:], separator) >= 0:
			return nil, errBinary
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return text, nil
		case err != nil:
			return nil, err
		}
	}
	return nil, fmt.Errorf("it grows while it is read: it had %d bytes and has more than %d", size, size+mostGrowth)
}

// read makes a corpus of those files that are text and that keep wants, and of the rows of others,
// of at most maxBytes (0: no cap).
func (s source) read(maxBytes int64) (*Corpus, error) {
	room := maxBytes
	switch {
	case maxBytes < 0:
		return nil, fmt.Errorf("the corpus is capped at %d bytes: expected a positive number, or 0 for the default", maxBytes)
	case maxBytes == 0:
		room = math.MaxInt64
	}
	files := slices.Clone(s.files)
	sortByNameHash(files, func(f file) string { return f.name })
	var docs []Document
	skipped := 0
	for rest := files; len(rest) > 0; {
		batch, n := fitting(rest, room)
		skipped += n - len(batch)
		rest = rest[n:]
		read, err := s.readAll(batch)
		if err != nil {
			return nil, err
		}
		for _, found := range read {
			for _, d := range found {
				if n := int64(len(d.Text)); n > 0 && n <= room {
					docs = append(docs, d)
					room -= n
				} else {
					skipped++
				}
			}
		}
	}
	if len(docs) == 0 {
		return nil, noText(s.name, len(files), maxBytes)
	}
	return newCorpus(docs, skipped)
}

// fitting returns the files that fit into room together, out of the first n of files. It stops
// where a file would fit only if one before it turns out to be unwanted, so a batch never reads
// more than is room for, and what is taken is what one file at a time would give.
func fitting(files []file, room int64) (batch []file, n int) {
	left := room
	for _, f := range files {
		switch {
		case f.kind.rows() || f.packing != unpacked:
			batch = append(batch, f) // which of its rows fit is seen when they are read
		case f.size > room: // never fits: room only shrinks
		case f.size > left:
			return batch, n
		default:
			batch = append(batch, f)
			left -= f.size
		}
		n++
	}
	return batch, n
}

// readAll returns the documents of each of files. What is not wanted has no text.
func (s source) readAll(files []file) ([][]Document, error) {
	all := make([][]Document, len(files))
	var group errgroup.Group
	group.SetLimit(readers)
	for i, f := range files {
		group.Go(func() error {
			return s.documents(f, func(d Document) error {
				if f.kind.rows() {
					d.Text = bytes.Clone(d.Text)
				}
				all[i] = append(all[i], d)
				return nil
			})
		})
	}
	return all, group.Wait()
}

func noText(source string, files int, maxBytes int64) error {
	limit := ""
	if maxBytes > 0 {
		limit = fmt.Sprintf(" of at most %d bytes", maxBytes)
	}
	return fmt.Errorf("no text in %s: none of %d files is a non-empty text file%s; hidden and binary files do not count",
		source, files, limit)
}
