package mx

// Number formats as data: what a quantized matrix holds. Everything else in this package follows
// from these values.

import (
	"fmt"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// Format describes quantized matrices: codes in blocks, each with a scale. Formats are compared
// with ==. The zero Format stands for a matrix that is not quantized.
type Format struct {
	Name string
	*format.Element

	// Block is how many elements share a scale: across the sum of a product, and along it.
	Block [2]int
	Scale ScaleType // of a block

	// TensorScale says that scales of blocks, which are E4M3 then, are relative to one FP32 scale
	// of each group of rows (see Tensor.Amax).
	TensorScale bool

	// Packed says that a byte holds the 4-bit codes of two columns, that of the even one in the low
	// bits. Otherwise each code has a byte.
	Packed bool
}

// ScaleType is what a scale is stored as.
type ScaleType uint8

// The types of scales.
const (
	ScaleE8M0 ScaleType = iota // a power of two, by a [ScaleMode]
	ScaleE4M3                  // the nearest such number, as in NVFP4
	ScaleFP32                  // as in DeepSeek-V3
)

// microscaling is a format of OCP MX: blocks of 32 along the sum, scales of E8M0.
func microscaling(e *format.Element) Format {
	return Format{Name: e.String(), Element: e, Block: [2]int{1, format.MXBlock}, Scale: ScaleE8M0}
}

// The formats of OCP MX v1.0.
var (
	E4M3 = microscaling(format.E4M3) // MXFP8
	E5M2 = microscaling(format.E5M2) // MXFP8
	E2M3 = microscaling(format.E2M3) // MXFP6
	E3M2 = microscaling(format.E3M2) // MXFP6
	E2M1 = microscaling(format.E2M1) // MXFP4
	INT8 = microscaling(format.INT8) // MXINT8
)

// Formats lists the built-in formats.
func Formats() []Format { return []Format{E4M3, E5M2, E2M3, E3M2, E2M1, INT8} }

// ParseFormat returns the built-in format of that name.
func ParseFormat(name string) (Format, error) {
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("%q is not an MX element format: use one of %v", name, Formats())
}

func (f Format) String() string {
	if !f.Quantizes() {
		return "not quantized"
	}
	return f.Name
}

// Quantizes says whether f is a format at all.
func (f Format) Quantizes() bool { return f.Element != nil }

// BytesPerElement returns what an element takes in memory, its part of the block's scale included.
func (f Format) BytesPerElement() float64 {
	return 1/float64(f.perByte()) + float64(f.Scale.dtype().Size())/float64(f.Block[0]*f.Block[1])
}

// BlocksIn returns how many blocks n elements along the sum of a product take.
func (f Format) BlocksIn(n int) int { return ceilDiv(n, f.Block[1]) }

// isMX says whether f is of OCP MX with a byte for each code: what all kernels want.
func (f Format) isMX() bool {
	return f.Block == [2]int{1, format.MXBlock} && f.Scale == ScaleE8M0 && !f.TensorScale && !f.Packed
}

// perByte returns how many codes a byte holds.
func (f Format) perByte() int {
	if f.Packed {
		return 2
	}
	return 1
}

// validate panics on a description that contradicts itself.
func (f Format) validate() {
	switch {
	case !f.Quantizes():
		panic("mx: a matrix in no format")
	case f.Block[0] < 1 || f.Block[1] < 1:
		panic(fmt.Sprintf("mx: %s has blocks of %v elements", f.Name, f.Block))
	case f.Packed && f.Bits() != 4:
		panic(fmt.Sprintf("mx: %s packs codes of %d bits in pairs, not of 4", f.Name, f.Bits()))
	case f.TensorScale && f.Scale != ScaleE4M3:
		panic(fmt.Sprintf("mx: %s has a scale of the tensor, which goes with block scales of E4M3 only", f.Name))
	case f.Scale > ScaleFP32:
		panic(fmt.Sprintf("mx: %s has scales of unknown type %d", f.Name, f.Scale))
	}
}

// dtype returns the type of a tensor of scales.
func (s ScaleType) dtype() tensor.DType {
	if s == ScaleFP32 {
		return tensor.FP32
	}
	return tensor.UINT8
}
