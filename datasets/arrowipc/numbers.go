package arrowipc

// A stream of record batches of numbers, without nulls and compressed with zstd.

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Number is a type of numbers.
type Number uint8

// The types of numbers in a stream.
const (
	Int32 Number = iota
	Uint16
	Float32
)

// size returns the bytes per number.
func (n Number) size() int64 {
	if n == Uint16 {
		return 2
	}
	return 4
}

// NumberColumn describes a column of numbers.
type NumberColumn struct {
	Name string
	Type Number
	List int // numbers per row, in a fixed-size list; 0: one number without a list
}

// bytes returns the bytes of the column's numbers in a number of rows.
func (c NumberColumn) bytes(rows int) int64 {
	return int64(rows) * int64(max(c.List, 1)) * c.Type.size()
}

// nodes returns the number of nodes and of buffers that the column has in a record batch. The last
// buffer has the numbers. The others are validity bitmaps.
func (c NumberColumn) nodes() (nodes, buffers int) {
	if c.List > 0 {
		return 2, 3
	}
	return 1, 2
}

// NumberWriter writes a stream.
type NumberWriter struct {
	out     countingWriter
	columns []NumberColumn
	zstd    *zstd.Encoder
}

// NewNumberWriter begins a stream. metadata has keys and values in turn.
func NewNumberWriter(w io.Writer, columns []NumberColumn, metadata []string) (*NumberWriter, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	s := &NumberWriter{countingWriter{w: w}, columns, encoder}
	s.out.message(headerSchema, schemaOfNumbers(columns, metadata), 0)
	return s, s.out.err
}

// Write writes a record batch. values has the numbers of each column, little-endian, and their
// number is [rows, List].
func (s *NumberWriter) Write(rows int, values [][]byte) error {
	var nodes, regions structs
	var body []byte
	for i, c := range s.columns {
		if int64(len(values[i])) != c.bytes(rows) {
			panic(fmt.Sprintf("arrowipc: column %s has %d bytes in %d rows, expected %d", c.Name, len(values[i]), rows, c.bytes(rows)))
		}
		nodes.add(int64(rows), 0)
		if c.List > 0 {
			nodes.add(int64(rows*c.List), 0)
			regions.add(int64(len(body)), 0)
		}
		regions.add(int64(len(body)), 0)
		start := len(body)
		body = binary.LittleEndian.AppendUint64(body, uint64(len(values[i])))
		body = s.zstd.EncodeAll(values[i], body)
		regions.add(int64(start), int64(len(body)-start))
		body = align(body, alignment)
	}
	compression := fields{byteOf(compressionZstd), byteOf(0)}
	s.out.message(headerRecordBatch, fields{long(int64(rows)), nodes, regions, compression}, int64(len(body)))
	s.out.write(body)
	return s.out.err
}

// Close ends the stream. It does not close its writer.
func (s *NumberWriter) Close() error {
	s.out.end()
	return s.out.err
}

// schemaOfNumbers returns the schema of columns.
func schemaOfNumbers(columns []NumberColumn, metadata []string) fields {
	var all vector
	for _, c := range columns {
		if c.List == 0 {
			all = append(all, c.Type.field(c.Name))
			continue
		}
		list := fields{word(int32(c.List))}
		all = append(all, fields{text(c.Name), byteOf(0), byteOf(typeFixedSizeList), list, nil, vector{c.Type.field("item")}})
	}
	return fields{short(0), all, pairs(metadata)}
}

// field returns the schema of a column of one number per row.
func (n Number) field(name string) fields {
	kind, of := byteOf(typeInt), fields{word(int32(8 * n.size())), byteOf(1)}
	switch n {
	case Uint16:
		of[1] = byteOf(0)
	case Float32:
		kind, of = byteOf(typeFloat), fields{short(singlePrecision)}
	}
	return fields{text(name), byteOf(0), kind, of, nil, vector{}}
}
