package mx

// Number formats as data. The rest of this package depends on these values only.

import (
	"fmt"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// Format describes a quantized matrix: codes in blocks with one scale each. Formats can be compared
// with ==. The zero Format stands for a matrix that is not quantized.
type Format struct {
	Name string
	*format.Element

	// Block is the shape of a block that shares a scale: its extent across the contracted dimension
	// of a product, and its extent along it.
	Block [2]int
	Scale ScaleType // type of a block's scale

	// TensorScale says that each group of rows has an FP32 scale (see Tensor.Amax). The scales of
	// its blocks are relative to it and must be E4M3.
	TensorScale bool

	// Packed says that a byte holds the 4-bit codes of two columns, the even one in the low bits.
	// Otherwise each code has a byte.
	Packed bool
}

// ScaleType is the storage type of a scale.
type ScaleType uint8

// The types of scales.
const (
	ScaleE8M0 ScaleType = iota // a power of two, chosen by a [ScaleMode]
	ScaleE4M3                  // the nearest E4M3 number, as in NVFP4
	ScaleFP32                  // as in DeepSeek-V3
)

// microscaling returns a format of OCP MX: blocks of 32 along the contracted dimension, E8M0
// scales.
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

// ParseFormat returns the built-in format of the given name.
func ParseFormat(name string) (Format, error) {
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("%q is not an MX element format: use one of %v", name, Formats())
}

// String returns the name of the format.
func (f Format) String() string {
	if !f.Quantizes() {
		return "not quantized"
	}
	return f.Name
}

// Quantizes says whether f is a format at all.
func (f Format) Quantizes() bool { return f.Element != nil }

// BytesPerElement returns the memory of an element, including its share of the block's scale.
func (f Format) BytesPerElement() float64 {
	return 1/float64(f.perByte()) + float64(f.Scale.dtype().Size())/float64(f.Block[0]*f.Block[1])
}

// BlocksIn returns the number of blocks for n elements along the contracted dimension.
func (f Format) BlocksIn(n int) int { return ceilDiv(n, f.Block[1]) }

// isMX says whether f is an OCP MX format with one byte per code, as all kernels require.
func (f Format) isMX() bool {
	return f.Block == [2]int{1, format.MXBlock} && f.Scale == ScaleE8M0 && !f.TensorScale && !f.Packed
}

// perByte returns the number of codes in a byte.
func (f Format) perByte() int {
	if f.Packed {
		return 2
	}
	return 1
}

// validate panics if the description contradicts itself.
func (f Format) validate() {
	switch {
	case !f.Quantizes():
		panic("mx: a quantized matrix needs a format, not the zero Format")
	case f.Block[0] < 1 || f.Block[1] < 1:
		panic(fmt.Sprintf("mx: %s has blocks of %v elements: both extents must be at least 1", f.Name, f.Block))
	case f.Packed && f.Bits() != 4:
		panic(fmt.Sprintf("mx: %s packs codes of %d bits: only 4-bit codes can be packed", f.Name, f.Bits()))
	case f.TensorScale && f.Scale != ScaleE4M3:
		panic(fmt.Sprintf("mx: %s has a tensor scale, which needs E4M3 block scales", f.Name))
	case f.Scale > ScaleFP32:
		panic(fmt.Sprintf("mx: %s has scales of the unknown type %d", f.Name, f.Scale))
	}
}

// dtype returns the type of a tensor of scales.
func (s ScaleType) dtype() tensor.DType {
	if s == ScaleFP32 {
		return tensor.FP32
	}
	return tensor.UINT8
}
