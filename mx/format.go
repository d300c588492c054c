package mx

// Number formats as data. The rest of this package depends on these values only.

import (
	"errors"
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
	// its blocks are relative to it: E4M3, or none.
	TensorScale bool

	// Shrink says that elements are multiplied by 3/4 before they are rounded. The elements of a
	// block with a FLOOR scale then stay within the format, so that stochastic rounding has no
	// bias. The matrix stands for 4/3 of its codes times scales.
	Shrink bool

	// Hadamard is the number of points of the Hadamard transform that a matrix has gone through
	// along its blocks before its elements were rounded. 0 means none. See [Hadamard].
	Hadamard int

	// NoSigns says that the transform has no random signs.
	NoSigns bool

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
	ScalePow2                  // FP32, rounded up to a power of two
	ScaleNone                  // blocks have none, only tensors
)

// microscaling returns a format of OCP MX: blocks of 32 along the contracted dimension, E8M0
// scales.
func microscaling(e *format.Element) Format {
	return Format{Name: e.String(), Element: e, Block: [2]int{1, format.MXBlock}, Scale: ScaleE8M0}
}

// The formats of OCP MX v1.0, with one byte per code.
var (
	E4M3 = microscaling(format.E4M3) // MXFP8
	E5M2 = microscaling(format.E5M2) // MXFP8
	E2M3 = microscaling(format.E2M3) // MXFP6
	E3M2 = microscaling(format.E3M2) // MXFP6
	E2M1 = microscaling(format.E2M1) // MXFP4
	INT8 = microscaling(format.INT8) // MXINT8
)

// Other formats that models are trained in.
var (
	// MXFP4 is E2M1 with two codes per byte.
	MXFP4 = Format{Name: "mxfp4", Element: format.E2M1, Block: E2M1.Block, Scale: ScaleE8M0, Packed: true}

	// NVFP4 is that of Transformer Engine: rows of 16 elements, and squares for weights.
	NVFP4     = nvfp4Format("nvfp4", 1)
	NVFP4Tile = nvfp4Format("nvfp4-16x16", 16)

	// FP8Row and FP8Tile are DeepSeek-V3's: rows of 128 elements, and squares for weights.
	FP8Row      = fp8Format("fp8-1x128", 1, ScaleFP32)
	FP8Tile     = fp8Format("fp8-128x128", 128, ScaleFP32)
	FP8RowPow2  = fp8Format("fp8-1x128-pow2", 1, ScalePow2)
	FP8TilePow2 = fp8Format("fp8-128x128-pow2", 128, ScalePow2)

	// FP8Tensor is E4M3 with one scale per tensor, as in torchao's tensorwise scaling. Its codes
	// are the same in both directions.
	FP8Tensor = Format{Name: "fp8-tensor", Element: format.E4M3, Block: [2]int{1, 1}, Scale: ScaleNone, TensorScale: true}
)

func nvfp4Format(name string, height int) Format {
	return Format{Name: name, Element: format.E2M1, Block: [2]int{height, 16}, Scale: ScaleE4M3, TensorScale: true, Packed: true}
}

func fp8Format(name string, height int, scale ScaleType) Format {
	return Format{Name: name, Element: format.E4M3, Block: [2]int{height, 128}, Scale: scale}
}

// MXFormats lists the built-in formats of OCP MX with one byte per code.
func MXFormats() []Format { return []Format{E4M3, E5M2, E2M3, E3M2, E2M1, INT8} }

// Formats lists the built-in formats.
func Formats() []Format {
	return append(MXFormats(), MXFP4, NVFP4, NVFP4Tile, FP8Row, FP8Tile, FP8RowPow2, FP8TilePow2, FP8Tensor)
}

// ParseFormat returns the built-in format of the given name.
func ParseFormat(name string) (Format, error) {
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("%q is not a number format: use one of %v", name, Formats())
}

// String returns the name of the format, followed by what has been added to the format of that
// name: "nvfp4+rht16", or "nvfp4+h16" without signs.
func (f Format) String() string {
	if !f.Quantizes() {
		return "not quantized"
	}
	name := f.Name
	if f.Shrink {
		name += "+3/4"
	}
	switch {
	case f.NoSigns:
		name += fmt.Sprintf("+h%d", f.Hadamard)
	case f.Hadamard > 0:
		name += fmt.Sprintf("+rht%d", f.Hadamard)
	}
	return name
}

// Quantizes says whether f is a format at all.
func (f Format) Quantizes() bool { return f.Element != nil }

// TransformsLike says whether a product of matrices in both formats is that of the matrices before
// their transforms.
func (f Format) TransformsLike(other Format) bool {
	return f.Hadamard == other.Hadamard && f.NoSigns == other.NoSigns
}

// BytesPerElement returns the memory of an element, including its share of the block's scale.
func (f Format) BytesPerElement() float64 {
	scale := float64(f.Scale.dtype().Size())
	if f.Scale == ScaleNone {
		scale = 0
	}
	return 1/float64(f.perByte()) + scale/float64(f.Block[0]*f.Block[1])
}

// BlocksIn returns the number of blocks for n elements along the contracted dimension.
func (f Format) BlocksIn(n int) int { return ceilDiv(n, f.Block[1]) }

// isMX says whether f is an OCP MX format with one byte per code, as its kernels require.
func (f Format) isMX() bool {
	return f.Block == [2]int{1, format.MXBlock} && f.Scale == ScaleE8M0 && !f.TensorScale && !f.Packed && !f.Shrink && f.Hadamard == 0
}

// perByte returns the number of codes in a byte.
func (f Format) perByte() int {
	if f.Packed {
		return 2
	}
	return 1
}

// Validate returns an error if the description contradicts itself.
func (f Format) Validate() error {
	switch {
	case !f.Quantizes():
		return errors.New("a quantized matrix needs a format, not the zero Format")
	case f.Block[0] < 1 || f.Block[1] < 1:
		return fmt.Errorf("%s has blocks of %v elements: both extents must be at least 1", f.Name, f.Block)
	case f.Packed && f.Bits() != 4:
		return fmt.Errorf("%s packs codes of %d bits: only 4-bit codes can be packed", f.Name, f.Bits())
	case f.TensorScale && f.Scale != ScaleE4M3 && f.Scale != ScaleNone:
		return fmt.Errorf("%s has a tensor scale, which needs E4M3 block scales or none", f.Name)
	case f.Scale == ScaleNone && (!f.TensorScale || f.Block != [2]int{1, 1}):
		return fmt.Errorf("%s has no block scales: it needs a tensor scale and blocks of one element", f.Name)
	case f.Hadamard < 0 || f.Hadamard > maxHadamard || f.Hadamard&(f.Hadamard-1) != 0:
		return fmt.Errorf("%s has a Hadamard transform of %d points: use a power of two of at most %d, or 0", f.Name, f.Hadamard, maxHadamard)
	case f.NoSigns && f.Hadamard == 0:
		return fmt.Errorf("%s has no signs and no Hadamard transform: give its points too", f.Name)
	case f.Scale > ScaleNone:
		return fmt.Errorf("%s has scales of the unknown type %d", f.Name, f.Scale)
	}
	return nil
}

// dtype returns the type of a tensor of scales.
func (s ScaleType) dtype() tensor.DType {
	if s == ScaleFP32 || s == ScalePow2 {
		return tensor.FP32
	}
	return tensor.UINT8
}
