package arrowipc

// Writing a file of lists of integers.

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Part is a record batch to write.
type Part struct {
	Lists, Integers int64
	Offsets         io.Reader // [Lists+1] int64, little-endian, as in Lists.Offsets
	Values          io.Reader // [Integers] in the width of the file
}

// alignment of buffers in the file, as the format recommends: a cache line.
const alignment = 64

// WriteTokens writes an Arrow file of one column, with the name field, of lists of unsigned
// integers of width bytes, 2 or 4. metadata has keys and values in turn. All readers are read to
// their end. It returns an error if one holds a different number of bytes than its part says.
func WriteTokens(w io.Writer, field string, width int, metadata []string, parts []Part) error {
	out := &countingWriter{w: w}
	out.write([]byte(Magic + "\x00\x00"))
	schema := schemaOf(field, width, metadata)
	out.message(headerSchema, schema, 0)
	var blocks []byte
	for i, p := range parts {
		offsets, values := 8*(p.Lists+1), int64(width)*p.Integers
		batch, body := batchOf(p, offsets, values)
		start := out.n
		out.message(headerRecordBatch, batch, body)
		blocks = binary.LittleEndian.AppendUint64(blocks, uint64(start))
		blocks = binary.LittleEndian.AppendUint64(blocks, uint64(out.n-start))
		blocks = binary.LittleEndian.AppendUint64(blocks, uint64(body))
		out.copy(fmt.Sprintf("offsets of part %d", i+1), p.Offsets, offsets)
		out.copy(fmt.Sprintf("values of part %d", i+1), p.Values, values)
	}
	out.end()
	footer := flatbuffer(fields{short(metadataV5), schema, structs{}, structs{len(parts), blocks}})
	out.write(footer)
	out.write(binary.LittleEndian.AppendUint32(nil, uint32(len(footer))))
	out.write([]byte(Magic))
	return out.err
}

func schemaOf(field string, width int, metadata []string) fields {
	integer := fields{word(int32(8 * width)), byteOf(0)}
	item := fields{text("item"), byteOf(0), byteOf(typeInt), integer, nil, vector{}}
	column := fields{text(field), byteOf(0), byteOf(typeLargeList), fields{}, nil, vector{item}}
	return fields{short(0), vector{column}, pairs(metadata)}
}

// pairs returns the metadata of a schema, whose keys and values come in turn.
func pairs(metadata []string) (all vector) {
	for i := 0; i < len(metadata); i += 2 {
		all = append(all, fields{text(metadata[i]), text(metadata[i+1])})
	}
	return all
}

// batchOf returns the header of a record batch and the length of its body.
func batchOf(p Part, offsets, values int64) (header fields, body int64) {
	up := func(n int64) int64 { return (n + alignment - 1) / alignment * alignment }
	at := up(offsets)
	body = at + up(values)
	var nodes, regions structs
	nodes.add(p.Lists, 0)
	nodes.add(p.Integers, 0)
	for _, r := range []region{{0, 0}, {0, offsets}, {at, 0}, {at, values}} {
		regions.add(r.offset, r.length)
	}
	return fields{long(p.Lists), nodes, regions}, body
}

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

// copy writes n bytes of r and pads them.
func (c *countingWriter) copy(what string, r io.Reader, n int64) {
	if c.err != nil {
		return
	}
	got, err := io.Copy(c.w, io.LimitReader(r, n+1))
	if c.n += got; err == nil && got != n {
		err = fmt.Errorf("arrowipc: the %s are not %d bytes", what, n)
	}
	if c.err = err; err == nil {
		c.write(bytes.Repeat([]byte{0}, int((alignment-c.n%alignment)%alignment)))
	}
}
