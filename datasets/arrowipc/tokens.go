package arrowipc

// A file of lists of integers that is used in place, mapped into memory. Nothing of it is copied,
// and all its metadata is checked first.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
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

// Len returns the number of integers.
func (l Lists) Len() int64 { return int64(len(l.U16) + len(l.I32)) }

// mostBatches is far above the number in any token file.
const mostBatches = 1 << 10

// ParseTokens checks an Arrow file of one column, with the name field, of type large_list of
// uint16, uint32 or int32, without compression and nulls. The file must be aligned to 8 bytes in
// memory, as a mapping is.
func ParseTokens(file []byte, field string) (*Tokens, error) {
	footer, err := footerOf(file)
	if err != nil {
		return nil, err
	}
	root := footer.root()
	width, err := listWidth(root, field)
	if err != nil {
		return nil, err
	}
	t := &Tokens{Metadata: keyValues(root.table(1), 2)}
	blocks, n := root.vector(3, 24)
	if footer.err != nil {
		return nil, footer.err
	}
	if n > mostBatches {
		return nil, fmt.Errorf("it has %d record batches: expected at most %d", n, mostBatches)
	}
	for i := range n {
		b := blocks[24*i:]
		l, err := lists(file, int64(binary.LittleEndian.Uint64(b)), int64(int32(binary.LittleEndian.Uint32(b[8:]))), width)
		if err != nil {
			return nil, fmt.Errorf("record batch %d: %w", i+1, err)
		}
		t.Batches = append(t.Batches, l)
	}
	return t, nil
}

// footerOf returns the flatbuffer at the end of a file.
func footerOf(file []byte) (*buffer, error) {
	end := len(file) - len(Magic) - 4
	if end < 8 || string(file[:len(Magic)]) != Magic {
		return nil, errors.New("it is no Arrow file: it does not begin with ARROW1")
	}
	if string(file[end+4:]) != Magic {
		return nil, errors.New("it is cut off: an Arrow file ends in its magic number")
	}
	size := int64(binary.LittleEndian.Uint32(file[end:]))
	if size > mostMetadata || size > int64(end)-8 {
		return nil, fmt.Errorf("it says that its footer has %d bytes, of %d in all", size, len(file))
	}
	return &buffer{b: file[int64(end)-size : end]}, nil
}

// listWidth checks the schema of a footer and returns the bytes per integer.
func listWidth(footer table, field string) (int64, error) {
	all, err := columns(footer.table(1), footer.i16(0))
	if err = cmp.Or(footer.f.err, err); err != nil {
		return 0, err
	}
	if len(all) != 1 || all[0].name != field || all[0].kind != typeLargeList || all[0].dictionary {
		return 0, fmt.Errorf("it is no token file: expected one column %q of type large_list (data tokenize writes such files)", field)
	}
	children := all[0].field.tables(5)
	if len(children) != 1 || children[0].u8(2) != typeInt || children[0].has(4) {
		return 0, fmt.Errorf("column %q is no list of integers", field)
	}
	integer := children[0].table(3)
	bits, signed := integer.i32(0), integer.u8(1) != 0
	if bits != 32 && (bits != 16 || signed) {
		return 0, fmt.Errorf("column %q holds integers of %d bits (signed: %v): expected uint16, uint32 or int32", field, bits, signed)
	}
	return int64(bits / 8), footer.f.err
}

// lists returns the record batch whose message begins at an offset, with before bytes before its
// body.
func lists(file []byte, offset, before, width int64) (l Lists, err error) {
	if offset < 0 || before < 8 || offset > int64(len(file)) || before > int64(len(file))-offset || before > mostMetadata {
		return l, fmt.Errorf("%d bytes of metadata at %d of a file of %d", before, offset, len(file))
	}
	prefix, size := binary.LittleEndian.Uint32(file[offset:]), int64(binary.LittleEndian.Uint32(file[offset+4:]))
	if prefix != continuation || size != before-8 {
		return l, fmt.Errorf("the message at %d has %d bytes of metadata, the footer says %d", offset, size, before-8)
	}
	m, err := parseMessage(file[offset+8 : offset+before])
	if err != nil {
		return l, err
	}
	start := offset + before
	if m.kind != headerRecordBatch || m.body > int64(len(file))-start {
		return l, fmt.Errorf("the message at %d is of kind %d with a body of %d bytes, of a file of %d", offset, m.kind, m.body, len(file))
	}
	if m.header.has(3) {
		return l, errors.New("it is compressed: a token file is used as it lies there")
	}
	body := file[start : start+m.body]
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
	if rows >= int64(len(file)) || count >= int64(len(file)) || int64(len(parts[1])) < 8*(rows+1) || int64(len(parts[3])) < width*count {
		return l, fmt.Errorf("%d lists of %d integers in all lie in %d and %d bytes", rows, count, len(parts[1]), len(parts[3]))
	}
	if l.Offsets, err = view[int64](parts[1], rows+1); err != nil {
		return l, err
	}
	if width == 2 {
		l.U16, err = view[uint16](parts[3], count)
	} else {
		l.I32, err = view[int32](parts[3], count)
	}
	if err != nil {
		return l, err
	}
	before = 0
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

// view returns the first n integers of b without copying them.
func view[T uint16 | int32 | int64](b []byte, n int64) ([]T, error) {
	if n == 0 {
		return []T{}, nil
	}
	var item T
	if uintptr(unsafe.Pointer(&b[0]))%unsafe.Sizeof(item) != 0 {
		return nil, errors.New("its integers are not aligned")
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n), nil
}

// Metadata returns the metadata of the schema of an Arrow file. It is empty if there is none, or if
// file is not an Arrow file.
func Metadata(file []byte) map[string]string {
	footer, err := footerOf(file)
	if err != nil {
		return nil
	}
	all := keyValues(footer.root().table(1), 2)
	if footer.err != nil {
		return nil
	}
	return all
}
