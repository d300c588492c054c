package arrowipc

// A column of strings, read from a stream of record batches.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Text is a column of strings.
type Text struct {
	s       stream
	schema  *buffer
	version int16
	column  column
	batch   int64
}

// NewText reads the schema of a stream or of a file, and finds the column with the name field. Its
// type must be string, large_string, binary or large_binary. r is read from its beginning, and not
// beyond the end of the stream.
func NewText(r io.Reader, field string) (*Text, error) {
	t := &Text{s: stream{r: r}}
	var start [8]byte
	if n, err := io.ReadFull(r, start[:]); err != nil && n == 0 {
		return nil, errors.New("it is empty: expected an Arrow stream or file")
	} else if err == nil && strings.HasPrefix(string(start[:]), Magic) {
		t.s.file = &tail{r: r}
		t.s.r = t.s.file
	} else {
		t.s.r = io.MultiReader(bytes.NewReader(start[:n]), r)
	}
	m, err := t.s.next()
	if err == io.EOF || err == nil && m.kind != headerSchema {
		return nil, errors.New("it does not begin with a schema")
	} else if err != nil {
		return nil, err
	}
	all, err := columns(m.header, m.version)
	if err != nil {
		return nil, err
	}
	t.column, err = choose(all, field)
	t.version, t.schema = m.version, m.header.f
	return t, err
}

// choose returns the column with a name.
func choose(all []column, field string) (column, error) {
	i := slices.IndexFunc(all, func(c column) bool { return c.name == field })
	if i < 0 {
		var names []string
		for _, c := range all[:min(len(all), 20)] {
			names = append(names, fmt.Sprintf("%.50q", c.name))
		}
		return column{}, fmt.Errorf("it has no column %q, but %s", field, strings.Join(names, ", "))
	}
	c := all[i]
	if c.dictionary {
		return c, fmt.Errorf("column %q is dictionary-encoded: expected a plain string or large_string", field)
	}
	switch c.kind {
	case typeUTF8, typeLargeUTF8, typeBinary, typeLargeBinary:
		return c, nil
	}
	return c, fmt.Errorf("column %q is of type %s: expected string or large_string", field, typeName(c.kind))
}

// Next returns the strings of the next record batch, with nil for null; io.EOF says that there is
// none. They are valid until the next call. Errors name the record batch.
func (t *Text) Next() ([][]byte, error) {
	for {
		m, err := t.s.next()
		if err == io.EOF {
			return nil, io.EOF
		}
		t.batch++
		if err == nil && m.kind == headerDictionary {
			t.batch--
			continue // belongs to another column
		}
		if err == nil && m.kind != headerRecordBatch {
			err = fmt.Errorf("a message of kind %d is none", m.kind)
		}
		var rows [][]byte
		if err == nil {
			rows, err = t.rows(m)
		}
		if err != nil {
			return nil, fmt.Errorf("record batch %d: %w", t.batch, err)
		}
		return rows, nil
	}
}

// rows reads the needed part of the body of a record batch.
func (t *Text) rows(m message) ([][]byte, error) {
	n, err := m.rows(t.column.node)
	if err != nil {
		return nil, err
	}
	codec, err := codecOf(m)
	if err != nil {
		return nil, err
	}
	first := t.column.buffer + views(m, t.column.views)
	if m.header.f.err != nil {
		return nil, m.header.f.err
	}
	var parts [3][]byte // validity, offsets, data
	at := int64(0)
	for i := range parts {
		r, err := m.region(first + i)
		if err != nil {
			return nil, err
		}
		if r.length == 0 {
			continue
		}
		if r.offset < at {
			return nil, fmt.Errorf("buffer %d begins at %d of the body, before the end of the one before it", first+i, r.offset)
		}
		if _, err := io.CopyN(io.Discard, t.s.r, r.offset-at); err != nil {
			return nil, cut(err)
		}
		b, err := read(t.s.r, r.length, mostBuffer, "buffer")
		if err != nil {
			return nil, err
		}
		at = r.offset + r.length
		t.s.left = m.body - at
		if parts[i], err = codec.unpack(b); err != nil {
			return nil, fmt.Errorf("buffer %d: %w", first+i, err)
		}
	}
	return split(parts[0], parts[1], parts[2], n, t.column.kind == typeLargeUTF8 || t.column.kind == typeLargeBinary)
}

// views returns the number of buffers that the first columns with a variable number of them have in
// addition to the usual two.
func views(m message, columns int) int {
	counts, n := m.header.vector(4, 8)
	sum := int64(0)
	for i := range min(columns, n) {
		sum += int64(min(binary.LittleEndian.Uint64(counts[8*i:]), mostFields))
	}
	if columns > n && m.header.f.err == nil {
		m.header.f.err = fmt.Errorf("a record batch counts the buffers of %d view columns, expected %d", n, columns)
	}
	return int(sum)
}

// split splits data at offsets: n+1 of them, of 4 bytes or, if wide, 8. validity has a bit per
// string, or is empty.
func split(validity, offsets, data []byte, n int64, wide bool) ([][]byte, error) {
	width := int64(4)
	if wide {
		width = 8
	}
	if n == 0 {
		return nil, nil
	}
	if n > int64(len(offsets)) || (n+1)*width > int64(len(offsets)) {
		return nil, fmt.Errorf("%d rows have %d bytes of offsets", n, len(offsets))
	}
	if len(validity) > 0 && int64(len(validity)) < (n+7)/8 {
		return nil, fmt.Errorf("%d rows have %d bytes of validity", n, len(validity))
	}
	offset := func(i int64) int64 {
		if wide {
			return int64(binary.LittleEndian.Uint64(offsets[8*i:]))
		}
		return int64(int32(binary.LittleEndian.Uint32(offsets[4*i:])))
	}
	rows := make([][]byte, n)
	for i := range n {
		from, to := offset(i), offset(i+1)
		if from < 0 || from > to || to > int64(len(data)) {
			return nil, fmt.Errorf("row %d lies at %d to %d of %d bytes", i+1, from, to, len(data))
		}
		if len(validity) == 0 || validity[i/8]>>(i%8)&1 == 1 {
			rows[i] = data[from:to:to]
		}
	}
	return rows, nil
}

// ending is the size of the end of a file: the length of its footer and the magic number.
const ending = 4 + len(Magic)

// tail passes on what is read from a file and records its last bytes.
type tail struct {
	r    io.Reader
	last []byte // at most ending
}

func (t *tail) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.last = append(t.last, b[max(0, n-ending):n]...)
	t.last = t.last[max(0, len(t.last)-ending):]
	return n, err
}

// rest reads to the end of the file, at most the length of a footer, and returns the number of
// bytes.
func (t *tail) rest() (int64, error) {
	n, err := io.CopyN(io.Discard, t, mostMetadata)
	if err == io.EOF {
		return n, nil
	}
	return n, err
}

// ends reports whether only a footer follows, with the magic number at its end.
func (t *tail) ends() bool {
	_, err := t.rest()
	return err == nil && strings.HasSuffix(string(t.last), Magic)
}

// footer handles what is neither a message nor the end of the stream. It returns io.EOF if it is
// the footer, which begins with the 4 bytes of start.
func (t *tail) footer(start uint32) error {
	n, err := t.rest()
	if err != nil {
		return err
	}
	if !strings.HasSuffix(string(t.last), Magic) || len(t.last) < ending || n+4 != int64(binary.LittleEndian.Uint32(t.last))+int64(ending) {
		return fmt.Errorf("it is cut off, or of a format before version 0.15: what begins with %#x is no message", start)
	}
	return io.EOF
}
