package arrowipc

// A file of lists of integers that is used in place, mapped into memory. Nothing of it is copied,
// and all its metadata is checked first.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"
)

// Tokens is an Arrow file of one column of lists of integers, with any number of record batches.
type Tokens struct {
	Metadata map[string]string // of the schema
	Batches  []Lists
}

// Lists is one record batch: list i has the integers from Offsets[i] to Offsets[i+1] of the slice
// that is not nil. Both point into the file.
type Lists struct {
	// one more than the number of lists; they begin with 0 and do not decrease
	Offsets []int64
	U16     []uint16
	// signed, or unsigned ones with the same bits: those above 2^31 are negative
	I32 []int32
}

// ParseTokens checks an Arrow file of one column, with the name field, of type large_list of
// uint16, uint32 or int32, without compression and nulls. The file must be aligned to 8 bytes in
// memory, as a mapping is.
func ParseTokens(file []byte, field string) (*Tokens, error) {
	all, err := streamIn(file)
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(all)
	s := &stream{r: r}
	schema, err := s.schema()
	if err != nil {
		return nil, err
	}
	width, err := listWidth(schema.header, field)
	if err != nil {
		return nil, err
	}
	t := &Tokens{Metadata: keyValues(schema.header, 2)}
	for err == nil {
		var m message
		if m, err = s.next(); err == io.EOF {
			return t, schema.header.f.err
		}
		rest := all[len(all)-r.Len():]
		switch {
		case err != nil:
		case m.kind != headerRecordBatch || m.body > int64(len(rest)):
			err = fmt.Errorf("a message of kind %d has a body of %d bytes, where %d are left", m.kind, m.body, len(rest))
		default:
			var l Lists
			l, err = lists(m, rest[:m.body], width)
			t.Batches = append(t.Batches, l)
			s.left = 0
			r.Reset(rest[m.body:])
			all = rest[m.body:]
		}
	}
	return nil, fmt.Errorf("record batch %d: %w", len(t.Batches)+1, err)
}

// streamIn returns the stream that a file in memory holds.
func streamIn(file []byte) ([]byte, error) {
	if len(file) < magicBytes || string(file[:len(Magic)]) != Magic {
		return nil, errors.New("it is no Arrow file: it does not begin with ARROW1")
	}
	to, err := endOfStream(file[max(len(file)-magicEnd, 0):], int64(len(file)))
	if err != nil {
		return nil, err
	}
	return file[magicBytes:to], nil
}

// listWidth checks a schema and returns the bytes per integer.
func listWidth(schema table, field string) (int64, error) {
	all, err := columns(schema)
	if err != nil {
		return 0, err
	}
	if len(all) != 1 || all[0].string(0) != field || all[0].u8(2) != typeLargeList || all[0].has(4) {
		return 0, fmt.Errorf("it is no token file: expected one column %q of type large_list (data tokenize writes such files)", field)
	}
	children := all[0].tables(5)
	if len(children) != 1 || children[0].u8(2) != typeInt || children[0].has(4) {
		return 0, fmt.Errorf("column %q is no list of integers", field)
	}
	integer := children[0].table(3)
	bits, signed := integer.i32(0), integer.u8(1) != 0
	if bits != 32 && (bits != 16 || signed) {
		return 0, fmt.Errorf("column %q holds integers of %d bits (signed: %v): expected uint16, uint32 or int32", field, bits, signed)
	}
	return int64(bits / 8), schema.f.err
}

// lists returns the lists in the body of a record batch.
func lists(m message, body []byte, width int64) (l Lists, err error) {
	if m.header.has(3) {
		return l, errors.New("it is compressed: a token file is used as it lies there")
	}
	rows := m.header.i64(0)
	nodes, n := m.header.vector(1, 16)
	if n != 2 {
		return l, fmt.Errorf("it has %d nodes: expected 2", n)
	}
	count := int64(binary.LittleEndian.Uint64(nodes[16:]))
	nulls := binary.LittleEndian.Uint64(nodes[8:]) | binary.LittleEndian.Uint64(nodes[24:])
	if listed := int64(binary.LittleEndian.Uint64(nodes)); listed != rows || rows < 0 || count < 0 || nulls != 0 {
		return l, fmt.Errorf("it has %d rows in a column of %d, %d integers and nulls: expected rows that are all there", rows, listed, count)
	}
	var parts [4][]byte
	for i := range parts {
		r, err := m.region(i)
		if err != nil {
			return l, err
		}
		parts[i] = body[r.offset : r.offset+r.length]
	}
	if rows >= int64(len(body)) || count >= int64(len(body)) || int64(len(parts[1])) < 8*(rows+1) || int64(len(parts[3])) < width*count {
		return l, fmt.Errorf("%d lists of %d integers in all lie in %d and %d bytes", rows, count, len(parts[1]), len(parts[3]))
	}
	if l.Offsets, err = View[int64](parts[1], rows+1); err != nil {
		return l, err
	}
	if width == 2 {
		l.U16, err = View[uint16](parts[3], count)
	} else {
		l.I32, err = View[int32](parts[3], count)
	}
	if err != nil {
		return l, err
	}
	before := int64(0)
	for i, at := range l.Offsets {
		if at < before || i == 0 && at != 0 {
			return l, fmt.Errorf("list %d begins at %d, the one before it at %d", i+1, at, before)
		}
		before = at
	}
	if before != count {
		return l, fmt.Errorf("the lists end at %d of %d integers", before, count)
	}
	return l, nil
}

// View returns the first n integers of b without copying them.
func View[T uint16 | int32 | int64](b []byte, n int64) ([]T, error) {
	if n == 0 {
		return []T{}, nil
	}
	var item T
	if uintptr(unsafe.Pointer(&b[0]))%unsafe.Sizeof(item) != 0 {
		return nil, errors.New("its integers are not aligned")
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n), nil
}
