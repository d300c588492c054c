package safetensors

// The element types of the format: their names, their widths and their order in a file.

import (
	"fmt"
	"math"
)

// The names of element types in a header that this program uses. All are little-endian.
const (
	U8     = "U8"
	F8E5M2 = "F8_E5M2"
	F8E4M3 = "F8_E4M3"
	F16    = "F16"
	BF16   = "BF16"
	I32    = "I32"
	F32    = "F32"
	F64    = "F64"
	I64    = "I64"
)

// elementType is a type of the format. F4 is E2M1, two elements per byte. C64 is two F32.
type elementType struct {
	name string
	bits int64
	// rank orders tensors in a file, highest first, as the reference library does: wide elements
	// before narrow ones, so that every tensor starts at a multiple of its own element size.
	rank int
}

// lookupDType returns the element type called name, or an error that lists the known ones.
func lookupDType(name string) (elementType, error) {
	ranked := [...]elementType{
		{name: "BOOL", bits: 8},
		{name: "F4", bits: 4}, {name: "F6_E2M3", bits: 6}, {name: "F6_E3M2", bits: 6},
		{name: U8, bits: 8}, {name: "I8", bits: 8},
		{name: F8E5M2, bits: 8}, {name: F8E4M3, bits: 8}, {name: "F8_E8M0", bits: 8},
		{name: "I16", bits: 16}, {name: "U16", bits: 16}, {name: F16, bits: 16}, {name: BF16, bits: 16},
		{name: I32, bits: 32}, {name: "U32", bits: 32}, {name: F32, bits: 32},
		{name: "C64", bits: 64}, {name: F64, bits: 64}, {name: I64, bits: 64}, {name: "U64", bits: 64},
	}
	var names []string
	for rank, t := range ranked {
		if t.rank = rank; t.name == name {
			return t, nil
		}
		names = append(names, t.name)
	}
	return elementType{}, fmt.Errorf("unknown dtype %.100q: expected one of %v", name, names)
}

// ByteSize returns the bytes of a tensor of this dtype and shape, without overflow.
func ByteSize(dtype string, shape []int) (int64, error) {
	t, err := lookupDType(dtype)
	if err != nil {
		return 0, err
	}
	total := t.bits
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if d != 0 && total > math.MaxInt64/int64(d) {
			return 0, fmt.Errorf("shape %v of %s has too many elements: its size overflows 63 bits", shape, dtype)
		}
		total *= int64(d)
	}
	if total%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s is %d bits, not a whole number of bytes", shape, dtype, total)
	}
	return total / 8, nil
}
