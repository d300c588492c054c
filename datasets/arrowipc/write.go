package arrowipc

// Writing files of lists of integers, and streams of numbers.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Part is a record batch of lists to write.
type Part struct {
	Offsets []int64   // as in Lists.Offsets
	Values  io.Reader // [last of Offsets] in the width of the file
}

// WriteTokens writes an Arrow file of one column, with the name field, of lists of unsigned
// integers of width bytes, 2 or 4. metadata has keys and values in turn. It returns an error if a
// reader holds a different number of bytes than its part says.
func WriteTokens(w io.Writer, field string, width int, metadata []string, parts []Part) error {
	buffered := bufio.NewWriterSize(w, 1<<16)
	out := &countingWriter{w: buffered}
	out.write([]byte(Magic + "\x00\x00"))
	integer := leaf("item", typeInt, fields{word(int32(8 * width)), byteOf(0)})
	schema := schemaOf(vector{nested(field, typeLargeList, fields{}, integer)}, metadata)
	out.message(headerSchema, schema, 0)
	var blocks []byte
	for i, p := range parts {
		integers := p.Offsets[len(p.Offsets)-1]
		var b batch
		b.node(int64(len(p.Offsets) - 1))
		b.node(integers)
		for _, n := range []int64{0, 8 * int64(len(p.Offsets)), 0, int64(width) * integers} {
			b.buffer(n)
		}
		start := out.n
		out.message(headerRecordBatch, b.header(int64(len(p.Offsets)-1)), b.body)
		blocks = binary.LittleEndian.AppendUint64(blocks, uint64(start))
		blocks = binary.LittleEndian.AppendUint64(blocks, uint64(out.n-start))
		blocks = binary.LittleEndian.AppendUint64(blocks, uint64(b.body))
		for _, offset := range p.Offsets {
			out.write(binary.LittleEndian.AppendUint64(make([]byte, 0, 8), uint64(offset)))
		}
		out.pad()
		out.copy(i+1, p.Values, int64(width)*integers)
	}
	out.end()
	footer := flatbuffer(fields{short(metadataV5), schema, structs{}, structs{len(parts), blocks}})
	out.write(footer)
	out.write(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))))
	out.write([]byte(Magic))
	return errors.Join(out.err, buffered.Flush())
}

// NumberWriter writes a stream of columns of numbers, compressed with zstd.
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
	var all vector
	for _, c := range columns {
		if c.List == 0 {
			all = append(all, c.Type.field(c.Name))
		} else {
			all = append(all, nested(c.Name, typeFixedSizeList, fields{word(int32(c.List))}, c.Type.field("item")))
		}
	}
	s := &NumberWriter{countingWriter{w: w}, columns, encoder}
	s.out.message(headerSchema, schemaOf(all, metadata), 0)
	return s, s.out.err
}

// Write writes a record batch. values has the numbers of each column, little-endian, and their
// number is [rows, List].
func (s *NumberWriter) Write(rows int, values [][]byte) error {
	var b batch
	var body []byte
	for i, c := range s.columns {
		if int64(len(values[i])) != c.bytes(rows) {
			panic(fmt.Sprintf("arrowipc: column %s has %d bytes in %d rows, expected %d", c.Name, len(values[i]), rows, c.bytes(rows)))
		}
		b.node(int64(rows))
		b.buffer(0)
		if c.List > 0 {
			b.node(int64(rows * c.List))
			b.buffer(0)
		}
		start := len(body)
		body = binary.LittleEndian.AppendUint64(body, uint64(len(values[i])))
		body = s.zstd.EncodeAll(values[i], body)
		b.buffer(int64(len(body) - start))
		body = align(body, alignment)
	}
	header := append(b.header(int64(rows)), fields{byteOf(compressionZstd), byteOf(0)})
	s.out.message(headerRecordBatch, header, b.body)
	s.out.write(body)
	return s.out.err
}

// Close ends the stream. It does not close its writer.
func (s *NumberWriter) Close() error {
	s.out.end()
	return s.out.err
}

// leaf returns the schema of a column without nulls.
func leaf(name string, kind uint8, detail fields) fields {
	return fields{text(name), byteOf(0), byteOf(kind), detail, nil, vector{}}
}

// nested returns the schema of a column of lists without nulls.
func nested(name string, kind uint8, detail, item fields) fields {
	return fields{text(name), byteOf(0), byteOf(kind), detail, nil, vector{item}}
}

// schemaOf returns a schema, with metadata whose keys and values come in turn.
func schemaOf(columns vector, metadata []string) fields {
	var pairs vector
	for i := 0; i < len(metadata); i += 2 {
		pairs = append(pairs, fields{text(metadata[i]), text(metadata[i+1])})
	}
	return fields{short(0), columns, pairs}
}

// alignment of buffers in a body, as the format recommends: a cache line.
const alignment = 64

// batch collects what the header of a record batch says.
type batch struct {
	nodes, regions structs
	body           int64 // bytes
}

func (b *batch) node(length int64) { b.nodes.add(length, 0) }

// buffer adds n bytes, and aligns what follows them.
func (b *batch) buffer(n int64) {
	b.regions.add(b.body, n)
	b.body = (b.body + n + alignment - 1) / alignment * alignment
}

func (b *batch) header(rows int64) fields { return fields{long(rows), b.nodes, b.regions} }

// countingWriter counts the bytes written and stops at the first error.
type countingWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *countingWriter) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
		c.n += int64(len(b))
	}
}

// message writes the metadata of a message, padded so that its body is aligned.
func (c *countingWriter) message(kind uint8, header fields, body int64) {
	metadata := flatbuffer(fields{short(metadataV5), byteOf(kind), header, long(body)})
	for (c.n+8+int64(len(metadata)))%alignment != 0 {
		metadata = append(metadata, 0)
	}
	c.write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, continuation), uint32(len(metadata))))
	c.write(metadata)
}

// end writes the end of the stream.
func (c *countingWriter) end() { c.write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}) }

// pad aligns what follows.
func (c *countingWriter) pad() {
	c.write(bytes.Repeat([]byte{0}, int((alignment-c.n%alignment)%alignment)))
}

// copy writes the n bytes of a part's values.
func (c *countingWriter) copy(part int, r io.Reader, n int64) {
	if c.err != nil {
		return
	}
	got, err := io.Copy(c.w, io.LimitReader(r, n+1))
	if c.n += got; err == nil && got != n {
		err = fmt.Errorf("arrowipc: the values of part %d are not %d bytes", part, n)
	}
	c.err = err
	c.pad()
}
