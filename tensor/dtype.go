package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// DType is the element type of a Tensor.
type DType uint8

// The element types that tensors can have.
const (
	FP32 DType = iota
	BF16
	INT32
	UINT8
)

// Size returns the bytes of one element.
func (d DType) Size() int {
	switch d {
	case FP32, INT32:
		return 4
	case BF16:
		return 2
	default:
		return 1
	}
}

// float reports whether kernels compute with elements of this type.
func (d DType) float() bool { return d == FP32 || d == BF16 }

// String returns the name, such as "bf16".
func (d DType) String() string {
	switch d {
	case FP32:
		return "fp32"
	case BF16:
		return "bf16"
	case INT32:
		return "int32"
	case UINT8:
		return "uint8"
	default:
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
}

// BFloat16 is a bfloat16 number: the upper half of the bits of a float32.
type BFloat16 uint16

// Float32 returns the value exactly.
func (b BFloat16) Float32() float32 { return vec.FromBF16(uint16(b)) }

// ToBFloat16 rounds to nearest, ties to even. Subnormals stay, and a NaN stays a (quiet) NaN.
func ToBFloat16(f float32) BFloat16 { return BFloat16(vec.ToBF16(f)) }
