package arrowipc

// Arrays of strings: where the strings of a column are in the buffers of a body. A string is looked
// up when it is needed, so that an array takes no memory beyond its buffers.

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// array is n strings. at returns one, nil for null; it is valid until the next call.
type array struct {
	n  int64
	at func(i int64) ([]byte, error)
}

// isString reports whether a field holds strings, with or without a dictionary.
func isString(f table) bool {
	switch f.u8(2) {
	case typeUTF8, typeLargeUTF8, typeBinary, typeLargeBinary, typeUTF8View, typeBinaryView:
		return true
	}
	return false
}

func isList(f table) bool {
	kind := f.u8(2)
	return kind == typeList || kind == typeLargeList || kind == typeFixedSizeList
}

func isWide(f table) bool {
	kind := f.u8(2)
	return kind == typeLargeUTF8 || kind == typeLargeBinary || kind == typeLargeList
}

// body reads the buffers of a message, in their order, and counts nodes and buffers depth first.
type body struct {
	message
	r                  io.Reader
	at                 int64 // what was read of it
	codec              codec
	free               int64 // what its buffers may still have unpacked beyond mostRatio
	used               int64 // bytes of its buffers
	node, buffer, view int
}

func newBody(m message, r io.Reader) (*body, error) {
	codec, err := codecOf(m)
	return &body{message: m, r: r, codec: codec, free: freeLength}, err
}

// mostBody is the maximum number of bytes of a column of a record batch, which are in memory.
const mostBody = 4 << 30

// next returns the next buffer, unpacked.
func (b *body) next() ([]byte, error) {
	i := b.buffer
	b.buffer++
	r, err := b.region(i)
	if err != nil || r.length == 0 {
		return nil, err
	}
	if r.offset < b.at {
		return nil, fmt.Errorf("buffer %d begins at %d of the body, before the end of the one before it", i, r.offset)
	}
	if _, err := io.CopyN(io.Discard, b.r, r.offset-b.at); err != nil {
		return nil, cut(err)
	}
	stored, err := read(b.r, r.length, mostBuffer, "buffer")
	if err != nil {
		return nil, err
	}
	b.at = r.offset + r.length
	all, err := b.codec.unpack(stored, b.free)
	if err != nil {
		return nil, fmt.Errorf("buffer %d: %w", i, err)
	}
	b.free -= max(int64(len(all))-mostRatio*int64(len(stored)), 0)
	if b.used += int64(len(all)); b.used > mostBody {
		return nil, fmt.Errorf("its text has more than %d bytes: write smaller record batches", mostBody)
	}
	return all, nil
}

// array returns the array of a field, which isString or isList. If its strings are in a dictionary,
// it has their indices in dict; nil: it is the dictionary.
func (b *body) array(f table, dict *dictionary) (array, error) {
	n, err := b.length(b.node)
	if err != nil {
		return array{}, err
	}
	b.node++
	validity, err := b.next()
	if err != nil {
		return array{}, err
	}
	if len(validity) > 0 && int64(len(validity)) < (n+7)/8 {
		return array{}, fmt.Errorf("%d rows have %d bytes of validity", n, len(validity))
	}
	var a array
	switch kind := f.u8(2); {
	case f.has(4) && dict != nil:
		a, err = b.indices(f, n, dict)
	case isList(f):
		a, err = b.lists(f, n, dict)
	case kind == typeUTF8View || kind == typeBinaryView:
		a, err = b.views(n)
	default:
		a, err = b.strings(n, isWide(f))
	}
	if len(validity) == 0 {
		return a, err
	}
	at := a.at
	a.at = func(i int64) ([]byte, error) {
		if validity[i/8]>>(i%8)&1 == 0 {
			return nil, nil
		}
		return at(i)
	}
	return a, err
}

// offsets reads n+1 offsets, of 4 bytes or, if wide, 8. It returns the range of item i, of most.
func (b *body) offsets(n int64, wide bool) (func(i, most int64) (from, to int64, err error), error) {
	all, err := b.next()
	if err != nil {
		return nil, err
	}
	width := int64(4)
	if wide {
		width = 8
	}
	if n > 0 && (n > int64(len(all)) || (n+1)*width > int64(len(all))) {
		return nil, fmt.Errorf("%d rows have %d bytes of offsets", n, len(all))
	}
	return func(i, most int64) (from, to int64, err error) {
		if wide {
			from, to = int64(binary.LittleEndian.Uint64(all[8*i:])), int64(binary.LittleEndian.Uint64(all[8*i+8:]))
		} else {
			from, to = int64(int32(binary.LittleEndian.Uint32(all[4*i:]))), int64(int32(binary.LittleEndian.Uint32(all[4*i+4:])))
		}
		if from < 0 || from > to || to > most {
			return 0, 0, fmt.Errorf("it lies at %d to %d of %d", from, to, most)
		}
		return from, to, nil
	}, nil
}

// strings reads strings of any length.
func (b *body) strings(n int64, wide bool) (array, error) {
	offset, err := b.offsets(n, wide)
	if err != nil {
		return array{}, err
	}
	data, err := b.next()
	return array{n, func(i int64) ([]byte, error) {
		from, to, err := offset(i, int64(len(data)))
		if err != nil {
			return nil, err
		}
		return some(data[from:to]), nil
	}}, err
}

// some returns a string that is not null.
func some(s []byte) []byte {
	if s == nil {
		return []byte{}
	}
	return s
}

const (
	viewBytes = 16 // of a view: a length, and a short string or its beginning, buffer and offset
	mostShort = 12
)

// views reads strings in a variable number of buffers.
func (b *body) views(n int64) (array, error) {
	all, err := b.next()
	if err != nil {
		return array{}, err
	}
	if n > int64(len(all)) || n*viewBytes > int64(len(all)) {
		return array{}, fmt.Errorf("%d rows have %d bytes of views", n, len(all))
	}
	before := views(b.message, b.view)
	b.view++
	data := make([][]byte, 0, 4)
	for range views(b.message, b.view) - before {
		part, err := b.next()
		if err != nil {
			return array{}, err
		}
		data = append(data, part)
	}
	return array{n, func(i int64) ([]byte, error) {
		v := all[i*viewBytes : (i+1)*viewBytes]
		size := int64(int32(binary.LittleEndian.Uint32(v)))
		if 0 <= size && size <= mostShort {
			return v[4 : 4+size], nil
		}
		k, at := int64(int32(binary.LittleEndian.Uint32(v[8:]))), int64(int32(binary.LittleEndian.Uint32(v[12:])))
		if size < 0 || k < 0 || k >= int64(len(data)) || at < 0 || at > int64(len(data[k])) || size > int64(len(data[k]))-at {
			return nil, fmt.Errorf("it is %d bytes at %d of buffer %d of %d", size, at, k, len(data))
		}
		return data[k][at : at+size], nil
	}}, nil
}

// mostRow is the maximum number of bytes of a list.
const mostRow = 256 << 20

// lists reads lists of strings.
func (b *body) lists(f table, n int64, dict *dictionary) (a array, err error) {
	var offset func(i, most int64) (from, to int64, err error)
	if f.u8(2) == typeFixedSizeList {
		size := int64(f.table(3).i32(0))
		if size < 1 {
			return a, fmt.Errorf("a column has lists of %d strings", size)
		}
		offset = func(i, most int64) (from, to int64, err error) {
			if i >= most/size {
				err = fmt.Errorf("list %d of %d is not there", i, most/size)
			}
			return i * size, (i + 1) * size, err
		}
	} else if offset, err = b.offsets(n, isWide(f)); err != nil {
		return a, err
	}
	items, err := b.array(f.tables(5)[0], dict)
	if err != nil {
		return a, err
	}
	if f.u8(2) == typeFixedSizeList && n > items.n {
		return a, fmt.Errorf("%d lists have %d strings", n, items.n)
	}
	var joined []byte
	return array{n, func(i int64) ([]byte, error) {
		from, to, err := offset(i, items.n)
		joined = joined[:0]
		any := false
		for k := from; k < to && err == nil; k++ {
			var item []byte
			if item, err = items.at(k); item == nil {
				continue
			}
			if any {
				joined = append(joined, '\n')
			}
			any = true
			if joined = append(joined, item...); len(joined) > mostRow {
				err = fmt.Errorf("a list has more than %d bytes", mostRow)
			}
		}
		if !any {
			return nil, err
		}
		return some(joined), err
	}}, nil
}

// dictionary holds the strings that the indices of a column stand for. Each message replaces it or
// adds to it.
type dictionary struct {
	id    int64
	parts []array
	ends  []int64 // number of strings up to the end of each part
	bytes int64   // of its messages
}

// addDictionary reads the dictionary in a message, if the column needs it.
func (t *Text) addDictionary(m message) error {
	d, of := t.dictionary, t.column.field
	if d == nil || m.header.i64(0) != d.id {
		return m.header.f.err
	}
	if m.header.u8(2) == 0 {
		*d = dictionary{id: d.id}
	}
	if isList(of) {
		of = of.tables(5)[0]
	}
	m.header = m.header.table(1)
	b, err := newBody(m, t.messages)
	if err != nil {
		return err
	}
	strings, err := b.array(of, nil)
	if err == nil {
		err = m.header.f.fault()
	}
	if err != nil {
		return err
	}
	if d.bytes += b.used; d.bytes > mostBuffer {
		return fmt.Errorf("it has more than %d bytes", mostBuffer)
	}
	d.parts, d.ends = append(d.parts, strings), append(d.ends, d.len()+strings.n)
	return nil
}

func (d *dictionary) len() int64 {
	if len(d.ends) == 0 {
		return 0
	}
	return d.ends[len(d.ends)-1]
}

func (d *dictionary) at(i int64) ([]byte, error) {
	if i < 0 || i >= d.len() {
		return nil, fmt.Errorf("it is string %d of a dictionary of %d", i, d.len())
	}
	part, _ := slices.BinarySearch(d.ends, i+1)
	return d.parts[part].at(i - d.ends[part] + d.parts[part].n)
}

// indices reads strings that are in the dictionary.
func (b *body) indices(f table, n int64, dict *dictionary) (array, error) {
	all, err := b.next()
	if err != nil {
		return array{}, err
	}
	bits, signed := int64(32), true // if the type is missing
	if f.table(4).has(1) {
		index := f.table(4).table(1)
		bits, signed = int64(index.i32(0)), index.u8(1) != 0
	}
	width := bits / 8
	switch width {
	case 1, 2, 4, 8:
	default:
		return array{}, fmt.Errorf("the indices into a dictionary have %d bits", bits)
	}
	if n > int64(len(all)) || n*width > int64(len(all)) {
		return array{}, fmt.Errorf("%d rows have %d bytes of indices", n, len(all))
	}
	return array{n, func(i int64) ([]byte, error) {
		var raw [8]byte
		copy(raw[:], all[i*width:(i+1)*width])
		index := int64(binary.LittleEndian.Uint64(raw[:]))
		if signed {
			index = index << (64 - bits) >> (64 - bits)
		}
		return dict.at(index)
	}}, nil
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
