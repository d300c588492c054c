package datasets

// Reading the files of a corpus: several at a time, in an order that does not depend on the machine, up to a cap.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sync/errgroup"
)

const (
	sniffBytes = 8 << 10 // looked at before the rest of a file is read
	readers    = 8       // files read at a time: enough to hide the latency of a disk
)

// errBinary says that a file holds the separator, which no text does.
var errBinary = errors.New("not plain text (it has a NUL byte)")

// file is a document that has not been read yet.
type file struct {
	name  string // name of the document
	path  string
	size  int64
	given bool // named by the user: being empty or binary is an error, not a reason to pass it over
}

// read returns the text of f, or nil where a file that the user did not name is binary.
func (f file) read() ([]byte, error) {
	text, err := readText(f.path, f.size)
	switch {
	case errors.Is(err, errBinary) && !f.given:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w: expected readable text files or folders of them", f.path, err)
	case len(text) == 0 && f.given:
		return nil, fmt.Errorf("%s is empty: expected a text file or a folder of them", f.path)
	}
	return text, nil
}

// readText returns what the file at path holds, about size bytes, or errBinary.
func readText(path string, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := io.CopyN(text, f, sniffBytes); err != nil && err != io.EOF {
		return nil, err
	}
	if bytes.IndexByte(text.Bytes(), separator) >= 0 {
		return nil, errBinary
	}
	if _, err := text.ReadFrom(f); err != nil {
		return nil, err
	}
	if bytes.IndexByte(text.Bytes(), separator) >= 0 {
		return nil, errBinary
	}
	return text.Bytes(), nil
}

// readCorpus makes a corpus of those files that are text and that keep wants, of at most maxBytes (0: no cap).
// source names the whole in errors.
func readCorpus(source string, files []file, keep func(text []byte) bool, maxBytes int64) (*Corpus, error) {
	room := maxBytes
	switch {
	case maxBytes < 0:
		return nil, fmt.Errorf("the corpus is capped at %d bytes: expected a positive number, or 0 for the default", maxBytes)
	case maxBytes == 0:
		room = math.MaxInt64
	}
	sortByNameHash(files, func(f file) string { return f.name })
	var docs []Document
	for rest := files; len(rest) > 0; {
		batch, n := fitting(rest, room)
		rest = rest[n:]
		texts, err := readAll(batch, keep)
		if err != nil {
			return nil, err
		}
		for i, f := range batch {
			if n := int64(len(texts[i])); n > 0 && n <= room {
				docs = append(docs, Document{Name: f.name, Text: texts[i]})
				room -= n
			}
		}
	}
	if len(docs) == 0 {
		return nil, noText(source, len(files), maxBytes)
	}
	return newCorpus(docs, len(files)-len(docs))
}

// fitting returns the files that fit into room together, out of the first n of files. It stops where a file would fit
// only if one before it turns out to be unwanted, so a batch never reads more than is room for, and what is taken is
// what one file at a time would give.
func fitting(files []file, room int64) (batch []file, n int) {
	left := room
	for _, f := range files {
		switch {
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

// readAll returns the texts of files. What is not wanted is nil.
func readAll(files []file, keep func(text []byte) bool) ([][]byte, error) {
	texts := make([][]byte, len(files))
	var group errgroup.Group
	group.SetLimit(readers)
	for i, f := range files {
		group.Go(func() error {
			text, err := f.read()
			if err == nil && keep(text) {
				texts[i] = text
			}
			return err
		})
	}
	return texts, group.Wait()
}

func noText(source string, files int, maxBytes int64) error {
	limit := ""
	if maxBytes > 0 {
		limit = fmt.Sprintf(" of at most %d bytes", maxBytes)
	}
	return fmt.Errorf("no text in %s: none of %d files is a non-empty text file%s; hidden and binary files do not count",
		source, files, limit)
}
