package export

// Events as protocol buffers. Field numbers are those of TensorBoard's event.proto, summary.proto,
// histogram.proto and tensor.proto.

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// event is one record of a file: the values of a step, or the version of the format if there are no
// values.
type event struct {
	time   float64 // seconds since 1970
	step   int
	values []byte // of a Summary
}

func (e event) marshal() []byte {
	b := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(e.time))
	if e.values == nil {
		return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), "brain.Event:2")
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(e.step))
	return message(b, 5, e.values)
}

// message appends a message, or bytes, as a field.
func message(b []byte, field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), content)
}

// value appends a tag with its content to the values of a Summary.
func (e *event) value(tag string, content []byte) {
	e.values = message(e.values, 1, append(message(nil, 1, []byte(tag)), content...))
}

// scalar adds a number if it is finite.
func (e *event) scalar(tag string, x float64) {
	if math.IsNaN(x) {
		return
	}
	e.value(tag, protowire.AppendFixed32(protowire.AppendTag(nil, 2, protowire.Fixed32Type), math.Float32bits(float32(x))))
}

// counts adds a histogram of the numbers 0, 1, 2, ... with the frequency of each.
func (e *event) counts(tag string, of []int64) {
	var n, sum, squares float64
	limits, buckets := make([]byte, 0, 8*len(of)), make([]byte, 0, 8*len(of))
	for i, count := range of {
		x, times := float64(i), float64(count)
		n, sum, squares = n+times, sum+times*x, squares+times*x*x
		limits = protowire.AppendFixed64(limits, math.Float64bits(x+0.5))
		buckets = protowire.AppendFixed64(buckets, math.Float64bits(times))
	}
	var h []byte
	for i, x := range []float64{-0.5, float64(len(of)) - 0.5, n, sum, squares} { // min, max, num, sum, sum of squares
		h = protowire.AppendFixed64(protowire.AppendTag(h, protowire.Number(1+i), protowire.Fixed64Type), math.Float64bits(x))
	}
	e.value(tag, message(nil, 5, message(message(h, 6, limits), 7, buckets)))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of data, rotated and offset as the format requires, so that checksums
// of checksums are sound.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// appendFrame appends one record to file, framed as TFRecord does: length, checksum of the length,
// data, checksum of the data.
func appendFrame(file, data []byte) []byte {
	head := len(file)
	file = binary.LittleEndian.AppendUint64(file, uint64(len(data)))
	file = binary.LittleEndian.AppendUint32(file, masked(file[head:]))
	file = append(file, data...)
	return binary.LittleEndian.AppendUint32(file, masked(data))
}
