package parquet

// Thrift's compact protocol, which encodes Parquet's metadata. Source: "Thrift Compact protocol
// encoding", apache/thrift.

import (
	"encoding/binary"
	"errors"
)

// The types of fields.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

const mostDepth = 32 // nesting of structs and lists

var errThrift = errors.New("its metadata is damaged")

// decoder reads values one after the other. After the first error all are zero.
type decoder struct {
	b     []byte
	at    int
	err   error
	depth int
}

func (d *decoder) fail() {
	d.err = errThrift
	d.at = len(d.b)
}

func (d *decoder) byte() uint8 {
	if d.at >= len(d.b) {
		d.fail()
		return 0
	}
	d.at++
	return d.b[d.at-1]
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b[d.at:])
	if n <= 0 {
		d.fail()
		return 0
	}
	d.at += n
	return v
}

// integer reads an i16, i32 or i64.
func (d *decoder) integer() int64 {
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (d *decoder) binary() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)-d.at) {
		d.fail()
		return nil
	}
	d.at += int(n)
	return d.b[d.at-int(n) : d.at]
}

// fields calls each with the number and type of every field of a struct. It skips a field for which
// each returns false.
func (d *decoder) fields(each func(id int, kind uint8) (taken bool)) {
	if d.depth++; d.depth > mostDepth {
		d.fail()
	}
	defer func() { d.depth-- }()
	id := 0
	for d.err == nil {
		head := d.byte()
		kind := head & 15
		if head == 0 || d.err != nil {
			return
		}
		if delta := int(head >> 4); delta != 0 {
			id += delta
		} else {
			id = int(int16(d.integer()))
		}
		if !each(id, kind) {
			d.skip(kind)
		}
	}
}

// items calls each for every item of a list of the type want. A list of another type is an error.
func (d *decoder) items(want uint8, each func(i int)) {
	head := d.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = d.uvarint()
	}
	if head&15 != want && n > 0 {
		d.fail()
	}
	for i := 0; uint64(i) < n && d.err == nil; i++ {
		each(i)
	}
}

// skip skips a value.
func (d *decoder) skip(kind uint8) {
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		d.byte()
	case thriftI16, thriftI32, thriftI64:
		d.uvarint()
	case thriftDouble:
		d.advance(8)
	case thriftUUID:
		d.advance(16)
	case thriftBinary:
		d.binary()
	case thriftStruct:
		d.fields(func(int, uint8) bool { return false })
	case thriftList, thriftSet:
		d.skipItems()
	case thriftMap:
		d.skipMap()
	default:
		d.fail()
	}
}

func (d *decoder) advance(n int) {
	if n > len(d.b)-d.at {
		d.fail()
		return
	}
	d.at += n
}

func (d *decoder) skipItems() {
	head := d.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = d.uvarint()
	}
	for ; n > 0 && d.err == nil; n-- {
		d.skipItem(head & 15)
	}
}

func (d *decoder) skipMap() {
	n := d.uvarint()
	if n == 0 {
		return
	}
	kinds := d.byte()
	for ; n > 0 && d.err == nil; n-- {
		d.skipItem(kinds >> 4)
		d.skipItem(kinds & 15)
	}
}

// skipItem is skip within a list or map, where a bool is a byte.
func (d *decoder) skipItem(kind uint8) {
	if d.depth++; d.depth > mostDepth {
		d.fail()
	}
	if kind == thriftTrue || kind == thriftFalse {
		d.byte()
	} else {
		d.skip(kind)
	}
	d.depth--
}
