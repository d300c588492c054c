package safetensors

// Tensors as FP32.

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Float32s returns the elements of an F32, BF16, F16 or F64 tensor, in row-major order, as FP32.
// F64 is rounded to nearest even; the other conversions are exact. Any other dtype is an error.
func (f *File) Float32s(name string) ([]float32, error) {
	info, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	values := make([]float32, info.Size/max(1, floatSize(info.DType)))
	if err := f.ReadFloat32s(info, values, 0); err != nil {
		return nil, err
	}
	return values, nil
}

// ReadFloat32s is Float32s for elements [offset, offset+len(dst)) of a tensor of this file. It uses
// a small buffer, so that the raw bytes and the values are never both in memory. A range outside
// the tensor is a programming error and panics.
func (f *File) ReadFloat32s(info Info, dst []float32, offset int64) error {
	width := floatSize(info.DType)
	if width == 0 {
		return fmt.Errorf("%s: tensor %q is %s, which does not convert to float32: use Bytes", f.name, info.Name, info.DType)
	}
	buffer := make([]byte, min(int64(len(dst))*width, 256<<10))
	for len(dst) > 0 {
		part := dst[:min(int64(len(dst)), int64(len(buffer))/width)]
		raw := buffer[:int64(len(part))*width]
		if err := f.ReadAt(info, raw, offset*width); err != nil {
			return err
		}
		decode(part, raw, info.DType)
		dst, offset = dst[len(part):], offset+int64(len(part))
	}
	return nil
}

// floatSize returns the bytes per element of a type that decode knows, and 0 for others.
func floatSize(dtype string) int64 {
	return map[string]int64{F64: 8, F32: 4, BF16: 2, F16: 2}[dtype]
}

// decode fills dst from the little-endian elements in src.
func decode(dst []float32, src []byte, dtype string) {
	le := binary.LittleEndian
	switch dtype {
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
		}
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16)
		}
	case F16:
		for i := range dst {
			dst[i] = HalfToFloat(le.Uint16(src[2*i:]))
		}
	}
}

// HalfToFloat converts an IEEE 754 binary16 exactly: 1 sign bit, 5 bits of exponent with bias 15,
// 10 of fraction.
func HalfToFloat(h uint16) float32 {
	sign, rest := uint32(h>>15)<<31, uint32(h&0x7fff)<<13
	switch rest >> 23 {
	case 0x1f: // infinity, or NaN with its payload
		rest |= 0xff << 23
	case 0: // zero and subnormals are fraction * 2^-24
		rest = math.Float32bits(float32(h&0x3ff) / (1 << 24))
	default:
		rest += (127 - 15) << 23
	}
	return math.Float32frombits(sign | rest)
}
