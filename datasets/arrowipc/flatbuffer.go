package arrowipc

// Reading flatbuffers whose bytes are not trusted: every position is checked, and the first invalid
// one is recorded. Source of the layout: the FlatBuffers "Internals" page.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
)

// buffer is a flatbuffer. After a read outside of it all reads return zero, and err describes the
// first one.
type buffer struct {
	b       []byte
	err     error
	strings int64 // bytes of all strings read: many may share the same place
}

// bytes returns n bytes at a position, or nil.
func (f *buffer) bytes(at, n int64) []byte {
	if f.err == nil && (at < 0 || n < 0 || at > int64(len(f.b)) || n > int64(len(f.b))-at) {
		f.err = fmt.Errorf("the metadata points to %d bytes at %d, but has %d", n, at, len(f.b))
	}
	if f.err != nil {
		return nil
	}
	return f.b[at : at+n]
}

// integer returns the integer of size bytes at a position.
func (f *buffer) integer(at, size int64) uint64 {
	var b [8]byte
	copy(b[:], f.bytes(at, size))
	return binary.LittleEndian.Uint64(b[:])
}

func (f *buffer) u32(at int64) uint32 { return uint32(f.integer(at, 4)) }

// root returns the table that the buffer holds.
func (f *buffer) root() table { return f.table(int64(f.u32(0))) }

// table is a table of fields, which may be missing.
type table struct {
	f                *buffer
	at, vtable, size int64
}

func (f *buffer) table(at int64) table {
	t := table{f: f, at: at, vtable: at - int64(int32(f.u32(at)))}
	t.size = int64(f.integer(t.vtable, 2))
	return t
}

// field returns the position of field i, or 0 if it is missing.
func (t table) field(i int) int64 {
	entry := int64(4 + 2*i)
	if t.f == nil || entry+2 > t.size {
		return 0
	}
	if offset := t.f.integer(t.vtable+entry, 2); offset != 0 {
		return t.at + int64(offset)
	}
	return 0
}

// integer returns field i, an integer of size bytes.
func (t table) integer(i int, size int64) uint64 {
	if at := t.field(i); at != 0 {
		return t.f.integer(at, size)
	}
	return 0
}

func (t table) u8(i int) uint8  { return uint8(t.integer(i, 1)) }
func (t table) i16(i int) int16 { return int16(t.integer(i, 2)) }
func (t table) i32(i int) int32 { return int32(t.integer(i, 4)) }
func (t table) i64(i int) int64 { return int64(t.integer(i, 8)) }

// target follows the offset in field i; 0 if it is missing.
func (t table) target(i int) int64 {
	at := t.field(i)
	if at == 0 {
		return 0
	}
	return at + int64(t.f.u32(at))
}

// table returns the table of field i, or an empty one if it is missing.
func (t table) table(i int) table {
	if at := t.target(i); at != 0 {
		return t.f.table(at)
	}
	return table{}
}

func (t table) has(i int) bool { return t.field(i) != 0 }

func (t table) string(i int) string {
	at := t.target(i)
	if at == 0 {
		return ""
	}
	b := t.f.bytes(at+4, int64(t.f.u32(at)))
	if t.f.strings += int64(len(b)); t.f.strings > 2*int64(len(t.f.b)) {
		t.f.err = cmp.Or(t.f.err, errors.New("the metadata has more text than bytes"))
		return ""
	}
	return string(b)
}

// vector returns the bytes of field i, a vector of items of size bytes, and the number of items.
func (t table) vector(i int, size int64) (items []byte, n int) {
	at := t.target(i)
	if at == 0 {
		return nil, 0
	}
	count := int64(t.f.u32(at))
	items = t.f.bytes(at+4, count*size)
	if items == nil {
		return nil, 0
	}
	return items, int(count)
}

// tables returns the tables of field i, a vector of them.
func (t table) tables(i int) []table {
	at := t.target(i)
	_, n := t.vector(i, 4)
	if n > mostFields {
		t.f.err = cmp.Or(t.f.err, fmt.Errorf("the metadata has a list of %d items: expected at most %d", n, mostFields))
		return nil
	}
	all := make([]table, 0, n)
	for k := range int64(n) {
		entry := at + 4 + 4*k
		all = append(all, t.f.table(entry+int64(t.f.u32(entry))))
	}
	return all
}
