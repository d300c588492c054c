package datasets

// Reading the files of a corpus: several at a time, in an order that does not depend on the machine, up to a cap.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"syscall"

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

// readText returns what the file at path holds, which had size bytes when it was found, or errBinary. Memory is taken as text comes: a
// file may claim any size, and have holes, which are bytes of zero.
func readText(path string, size int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe, put there meanwhile, must not block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("no regular file any more")
	}
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
