package arrowipc

// Writing flatbuffers: a table is written before the objects that it refers to, and the offsets are
// set when their positions are known.

import "encoding/binary"

// object is a table, a vector or a string that a table refers to.
type object interface {
	// write appends the object and returns its position.
	write(b []byte) (all []byte, at int)
}

// scalar is an integer of 1, 2, 4 or 8 bytes in a table.
type scalar struct {
	size  int
	value uint64
}

func byteOf(v uint8) scalar { return scalar{1, uint64(v)} }
func short(v int16) scalar  { return scalar{2, uint64(uint16(v))} }
func word(v int32) scalar   { return scalar{4, uint64(uint32(v))} }
func long(v int64) scalar   { return scalar{8, uint64(v)} }

// fields is a table: each is a scalar, an object or nil, which is a missing field.
type fields []any

// structs is a vector of n items of one size, aligned to 8 bytes.
type structs struct {
	n     int
	items []byte
}

// add appends a struct of two integers of 8 bytes.
func (s *structs) add(first, second int64) {
	s.items = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(s.items, uint64(first)), uint64(second))
	s.n++
}

type text string

type vector []object

func align(b []byte, to int) []byte {
	for len(b)%to != 0 {
		b = append(b, 0)
	}
	return b
}

// flatbuffer returns the bytes of a table, a multiple of 8.
func flatbuffer(root fields) []byte {
	b, at := root.write(make([]byte, 8))
	binary.LittleEndian.PutUint32(b, uint32(at))
	return align(b, 8)
}

// refer writes an object and sets the offset at a position to it.
func refer(b []byte, from int, to object) []byte {
	b, at := to.write(b)
	binary.LittleEndian.PutUint32(b[from:], uint32(at-from))
	return b
}

func (t fields) write(b []byte) ([]byte, int) {
	b = align(b, 8)
	vtable := len(b)
	b = append(b, make([]byte, 4+2*len(t))...)
	b = align(b, 4)
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(at-vtable))
	type reference struct {
		from int
		to   object
	}
	var later []reference
	for i, f := range t {
		var place int
		switch f := f.(type) {
		case nil:
			continue
		case scalar:
			b = align(b, f.size)
			place = len(b)
			var value [8]byte
			binary.LittleEndian.PutUint64(value[:], f.value)
			b = append(b, value[:f.size]...)
		case object:
			b = align(b, 4)
			place = len(b)
			b = append(b, 0, 0, 0, 0)
			later = append(later, reference{place, f})
		default:
			panic("arrowipc: a field that is neither a scalar nor an object")
		}
		binary.LittleEndian.PutUint16(b[vtable+4+2*i:], uint16(place-at))
	}
	binary.LittleEndian.PutUint16(b[vtable:], uint16(4+2*len(t)))
	binary.LittleEndian.PutUint16(b[vtable+2:], uint16(len(b)-at))
	for _, r := range later {
		b = refer(b, r.from, r.to)
	}
	return b, at
}

func (s structs) write(b []byte) ([]byte, int) {
	b = append(align(b, 8), 0, 0, 0, 0) // so that the items, after their number, are aligned
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.n))
	return append(b, s.items...), at
}

func (s text) write(b []byte) ([]byte, int) {
	b = align(b, 4)
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(append(b, s...), 0), at
}

func (v vector) write(b []byte) ([]byte, int) {
	b = align(b, 4)
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	b = append(b, make([]byte, 4*len(v))...)
	for i, o := range v {
		b = refer(b, at+4+4*i, o)
	}
	return b, at
}
