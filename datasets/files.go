package datasets

// Reading the files of a corpus: several at a time, in an order that does not depend on the
// machine.

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
	text, err := readText(f.path, f.size, f.packing)
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

// readText returns the uncompressed content of the file at path, which had size bytes when it was
// found, or errBinary. It allocates memory as text arrives, because a file may claim any size, and
// have holes, which are bytes of zero.
func readText(path string, size int64, how packing) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, done, err := how.reader(f)
	if err == io.EOF {
		return nil, nil // it is empty
	} else if err != nil {
		return nil, err
	}
	defer done()
	if how != unpacked {
		r, size = newGuard(r, size), math.MaxInt64-mostGrowth // which says what is too much
	}
	text := make([]byte, 0, min(size, mostTrusted)+1)
	for next := sniffBytes; int64(len(text)) <= size+mostGrowth; next = max(sniffBytes, len(text), cap(text)-len(text)) {
		at, room := len(text), next
		if left := size + 1 - int64(at); left > 0 {
			room = int(min(int64(room), left))
		}
		text = slices.Grow(text, room)
		n, err := r.Read(text[at : at+room])
		text = text[:at+n]
		switch {
		case bytes.IndexByte(text[at:], separator) >= 0:
			return nil, errBinary
		case err == io.EOF:
			return text, nil
		case err != nil && how == unpacked:
			return nil, err
		case err != nil:
			return nil, packed(err)
		}
	}
	return nil, fmt.Errorf("it grows while it is read: it had %d bytes and has more than %d", size, size+mostGrowth)
}

// texts reads the text files that keep accepts, and the rows of other files.
func (s source) texts() (t texts, err error) {
	files := slices.Clone(s.files)
	sortByNameHash(files)
	read, err := s.readAll(files)
	if err != nil {
		return t, err
	}
	var docs []Document
	for _, d := range slices.Concat(read...) {
		t.losses.count(d)
		if len(d.Text) > 0 {
			docs = append(docs, d)
		} else {
			t.losses.Skipped++
		}
	}
	for _, f := range files {
		t.losses.Other += f.others
	}
	if len(docs) == 0 {
		return t, s.noText(t.losses)
	}
	t.builtin = s.builtin
	t.train, t.heldOut, err = split(docs)
	return t, err
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
func (s source) noText(losses Losses) error {
	if !slices.ContainsFunc(s.files, func(f file) bool { return !f.kind.rows() }) {
		return fmt.Errorf("no text in %s: %q has no text in any of %d rows (%d have NUL bytes only; the others are empty or null): give other data, or another data_field",
			s.name, cmp.Or(s.field, DefaultField), losses.Skipped, losses.NUL)
	}
	return fmt.Errorf("no text in %s: none of %d files is a non-empty text file; hidden and binary files do not count; %d rows and files have no text (%d have NUL bytes only)",
		s.name, len(s.files), losses.Skipped, losses.NUL)
}
