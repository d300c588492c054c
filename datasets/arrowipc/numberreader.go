package arrowipc

// Reading a stream of record batches of numbers.

import (
	"encoding/binary"
	"fmt"
	"io"
)

// NumberReader reads a stream of numbers, compressed or not.
type NumberReader struct {
	Columns  []NumberColumn
	Metadata map[string]string // of the schema

	s stream
}

// NewNumberReader reads the schema of a stream. r is not read beyond the end of the stream.
func NewNumberReader(r io.Reader) (*NumberReader, error) {
	n := &NumberReader{s: stream{r: r}}
	m, err := n.s.schema()
	if err != nil {
		return nil, err
	}
	all, err := columns(m.header)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		column, err := numbersOf(c)
		if err != nil {
			return nil, err
		}
		n.Columns = append(n.Columns, column)
	}
	n.Metadata = keyValues(m.header, 2)
	return n, m.header.f.err
}

// numbersOf returns what a column of a schema holds. It returns an error if that is not numbers.
func numbersOf(column table) (n NumberColumn, err error) {
	n.Name = column.string(0)
	of := column
	if column.u8(2) == typeFixedSizeList {
		children := column.tables(5)
		if n.List = int(column.table(3).i32(0)); n.List < 1 || len(children) != 1 {
			return n, fmt.Errorf("column %.50q has lists of %d numbers in %d columns", n.Name, n.List, len(children))
		}
		of = children[0]
	}
	kind, detail := of.u8(2), of.table(3)
	signed := detail.u8(1) != 0
	switch bits := detail.i32(0); {
	case of.has(4):
		return n, fmt.Errorf("column %.50q is dictionary-encoded: expected plain numbers", n.Name)
	case kind == typeInt && bits == 32 && signed:
		n.Type = Int32
	case kind == typeInt && bits == 16 && !signed:
		n.Type = Uint16
	case kind == typeFloat && detail.i16(0) == singlePrecision:
		n.Type = Float32
	default:
		return n, fmt.Errorf("column %.50q is of type %d: expected int32, uint16 or float32", n.Name, kind)
	}
	return n, of.f.err
}

// Next returns the numbers of each column, little-endian, in the next record batch. It returns an
// error unless the batch has that many rows, and io.EOF if there is none.
func (n *NumberReader) Next(rows int) ([][]byte, error) {
	m, err := n.s.next()
	if err != nil {
		return nil, err
	}
	if m.kind != headerRecordBatch || m.header.i64(0) != int64(rows) {
		return nil, fmt.Errorf("a message of kind %d has %d rows: expected a record batch of %d", m.kind, m.header.i64(0), rows)
	}
	body, err := read(n.s.r, m.body, n.mostBody(rows), "record batch")
	if err != nil {
		return nil, err
	}
	n.s.left = 0
	var all [][]byte
	node := 0
	for i, c := range n.Columns {
		// A column has a bitmap of validity for each of its nodes, and then its numbers.
		nodes := min(c.List, 1) + 1
		values, err := c.values(m, body, rows, node, node+nodes+i)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		all = append(all, values)
		node += nodes
	}
	return all, m.header.f.err
}

// mostBody bounds the bytes of a record batch: compression hardly makes numbers longer, and each
// may have a bit of validity.
func (n *NumberReader) mostBody(rows int) int64 {
	most := int64(1 << 16)
	for _, c := range n.Columns {
		most += 2 * c.bytes(rows)
	}
	return most
}

// values returns the column's numbers, from its first node and its last buffer.
func (c NumberColumn) values(m message, body []byte, rows, node, buffer int) ([]byte, error) {
	if err := c.check(m, rows, node); err != nil {
		return nil, err
	}
	r, err := m.region(buffer)
	if err != nil {
		return nil, err
	}
	return m.unpack(body[r.offset:r.offset+r.length], c.bytes(rows))
}

// check returns an error unless all rows of the column have numbers.
func (c NumberColumn) check(m message, rows, node int) error {
	items, n := m.header.vector(1, 16)
	want := []int{rows}
	if c.List > 0 {
		want = append(want, rows*c.List)
	}
	if node+len(want) > n {
		return fmt.Errorf("the record batch has %d nodes, node %d is missing", n, node+len(want)-1)
	}
	for i, w := range want {
		item := items[16*(node+i):]
		length, nulls := int64(binary.LittleEndian.Uint64(item)), int64(binary.LittleEndian.Uint64(item[8:]))
		if length != int64(w) || nulls != 0 {
			return fmt.Errorf("it has %d numbers or lists and %d nulls, expected %d and none", length, nulls, w)
		}
	}
	return nil
}
