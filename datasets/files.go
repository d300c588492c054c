package datasets

// Reading the files of a corpus: several at a time, in an order that does not depend on the
// machine, up to a cap.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"
)

const (
	sniffBytes = 8 << 10 // inspected before the rest of a file is read
	// bytes that are allocated because a file claims to have them
	mostTrusted = 1 << 20
	// bytes that a file may have beyond its size, if it is being written or does not know its size
	mostGrowth = 1 << 20
	// files read at a time: enough to hide the latency of a disk
	readers = 8
)

// errBinary says that a file contains the separator, which text never does.
var errBinary = errors.New("not plain text (it has a NUL byte)")

// file is a document, or a file with one document per row, that was not read yet.
type file struct {
	name string // name of the document, or prefix of the names of its rows
	path string
	size int64
	// named by the user: being empty or binary is then an error
	given   bool
	kind    kind
	packing packing
	text    []byte // of a file inside the program; nil: it is on disk
	others  int    // files of its folder that are left out, see textsOrRows; of one file per folder
}

// read returns the text of f, or nil for a binary file that the user did not name.
func (f file) read() ([]byte, error) {
	if f.text != nil {
		return f.text, nil
	}
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
		return nil, fmt.Errorf("%s is empty: %s", f.path, expectedData)
	}
	return text, nil
}

// readText returns the content of the file at path, which had size bytes when it was found, or
// errBinary. It allocates memory as text arrives, because a file may claim any size, and have
// holes, which are bytes of zero.
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

// texts reads the text files that keep accepts, and the rows of other files: at most maxBytes, or
// all if it is 0.
func (s source) texts(maxBytes int64) (t texts, err error) {
	room := maxBytes
	switch {
	case maxBytes < 0:
		return t, fmt.Errorf("the corpus is capped at %d bytes: expected a positive number, or 0 for the default", maxBytes)
	case maxBytes == 0:
		room = math.MaxInt64
	}
	files := slices.Clone(s.files)
	sortByNameHash(files, func(f file) string { return f.name })
	for _, f := range files {
		t.losses.Other += f.others
	}
	var docs []Document
	for rest := files; len(rest) > 0; {
		batch, n := fitting(rest, room)
		t.losses.Skipped += n - len(batch)
		rest = rest[n:]
		read, err := s.readAll(batch)
		if err != nil {
			return t, err
		}
		for _, found := range read {
			for _, d := range found {
				t.losses.count(d)
				if n := int64(len(d.Text)); n > 0 && n <= room {
					docs = append(docs, d)
					room -= n
				} else {
					t.losses.Skipped++
				}
			}
		}
	}
	if len(docs) == 0 {
		return t, s.noText(maxBytes, t.losses)
	}
	t.builtin, t.rules = s.builtin, s.rules
	t.train, t.heldOut, err = s.rules.split(docs)
	return t, err
}

// fitting returns files that fit into room together, from the first n of files. It stops where a
// file would fit only if an earlier one turns out to be unwanted. So a batch never reads more than
// there is room for, and the result is the same as for one file at a time.
func fitting(files []file, room int64) (batch []file, n int) {
	left := room
	for _, f := range files {
		switch {
		case f.kind.rows() || f.packing != unpacked:
			batch = append(batch, f) // which of its rows fit is known when they are read
		case f.size > room: // never fits, because room only shrinks
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

// readAll returns the documents of each of files. Unwanted ones have no text.
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

// noText says that no document of a source has text.
func (s source) noText(maxBytes int64, losses Losses) error {
	limit := ""
	if maxBytes > 0 {
		limit = fmt.Sprintf(" of at most %d bytes", maxBytes)
	}
	if !slices.ContainsFunc(s.files, func(f file) bool { return !f.kind.rows() }) {
		return fmt.Errorf("no text in %s: %q has no text%s in any of %d rows (%d have NUL bytes only; the others are empty or null): give other data, or another data_field",
			s.name, cmp.Or(s.field, DefaultField), limit, losses.Skipped, losses.NUL)
	}
	return fmt.Errorf("no text in %s: none of %d files is a non-empty text file%s; hidden and binary files do not count; %d rows and files have no text (%d have NUL bytes only)",
		s.name, len(s.files), limit, losses.Skipped, losses.NUL)
}
