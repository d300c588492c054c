package safetensors

// The element types of the format: their names, their widths and their order in a file.

import (
	"fmt"
	"math"
	"slices"
)

// The names of element types in a header. All are little-endian.
const (
	Bool   = "BOOL"
	F4     = "F4" // E2M1, two elements per byte
	F6E2M3 = "F6_E2M3"
	F6E3M2 = "F6_E3M2"
	U8     = "U8"
	I8     = "I8"
	F8E5M2 = "F8_E5M2"
	F8E4M3 = "F8_E4M3"
	F8E8M0 = "F8_E8M0"
	I16    = "I16"
	U16    = "U16"
	F16    = "F16"
	BF16   = "BF16"
	I32    = "I32"
	U32    = "U32"
	F32    = "F32"
	C64    = "C64" // two F32
	F64    = "F64"
	I64    = "I64"
	U64    = "U64"
)

type elementType struct {
	bits int64
	// rank orders tensors in a file, highest first, as the reference library does: wide elements
	// before narrow ones, so that every tensor starts at a multiple of its own element size.
	rank int
}

// lookupDType returns the element type called name, or an error that lists the known ones.
func lookupDType(name string) (elementType, error) {
	ranked := []string{Bool, F4, F6E2M3, F6E3M2, U8, I8, F8E5M2, F8E4M3, F8E8M0,
		I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64}
	rank := slices.Index(ranked, name)
	var bits int64
	switch name {
	case F4:
		bits = 4
	case F6E2M3, F6E3M2:
		bits = 6
	case Bool, U8, I8, F8E5M2, F8E4M3, F8E8M0:
		bits = 8
	case I16, U16, F16, BF16:
		bits = 16
	case I32, U32, F32:
		bits = 32
	case C64, F64, I64, U64:
		bits = 64
	default:
		return elementType{}, fmt.Errorf("unknown dtype %.100q: expected one of %v", name, ranked)
	}
	return elementType{bits, rank}, nil
}

// byteSize returns the bytes of a tensor of this dtype and shape, without overflow.
func byteSize(dtype string, shape []int) (int64, error) {
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
			return 0, fmt.Errorf("shape %v of %s overflows 63 bits", shape, dtype)
		}
		total *= int64(d)
	}
	if total%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s is %d bits, not a whole number of bytes", shape, dtype, total)
	}
	return total / 8, nil
}
