package arrowipc

// Columns of numbers without nulls.

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

// field returns the schema of a column of one number per row.
func (n Number) field(name string) fields {
	switch n {
	case Uint16:
		return leaf(name, typeInt, fields{word(16), byteOf(0)})
	case Float32:
		return leaf(name, typeFloat, fields{short(singlePrecision)})
	}
	return leaf(name, typeInt, fields{word(32), byteOf(1)})
}
