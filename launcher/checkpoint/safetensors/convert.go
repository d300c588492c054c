package safetensors

// Tensors as Go numbers. Float types are converted to FP32. Integer types are converted to int32 if
// every value fits.

import (
	"encoding/binary"
	"fmt"
	"math"
)

// decoder fills dst from the little-endian elements in src.
type decoder[T any] func(dst []T, src []byte) error

// Float32s returns the elements of an F32, BF16, F16 or F64 tensor, in row-major order, as FP32.
// F64 is rounded to nearest even; the other conversions are exact. Any other dtype is an error.
func (f *File) Float32s(name string) ([]float32, error) { return convert(f, name, floatDecoders()) }

// ReadFloat32s is Float32s for elements [offset, offset+len(dst)) of a tensor of this file. A range
// outside the tensor is a programming error and panics.
func (f *File) ReadFloat32s(info Info, dst []float32, offset int64) error {
	return decode(f, info, dst, offset, floatDecoders())
}

func floatDecoders() map[string]decoder[float32] {
	le := binary.LittleEndian
	return map[string]decoder[float32]{
		F32: func(dst []float32, src []byte) error {
			for i := range dst {
				dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
			}
			return nil
		},
		BF16: func(dst []float32, src []byte) error {
			for i := range dst {
				dst[i] = math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16)
			}
			return nil
		},
		F16: func(dst []float32, src []byte) error {
			for i := range dst {
				dst[i] = HalfToFloat(le.Uint16(src[2*i:]))
			}
			return nil
		},
		F64: func(dst []float32, src []byte) error {
			for i := range dst {
				dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
			}
			return nil
		},
	}
}

// Int32s returns the elements of an integer tensor, in row-major order. A value outside int32 is an
// error, as is a dtype that is not an integer.
func (f *File) Int32s(name string) ([]int32, error) {
	le := binary.LittleEndian
	return convert(f, name, map[string]decoder[int32]{
		U8:  narrowing(1, func(b []byte) int64 { return int64(b[0]) }),
		I8:  narrowing(1, func(b []byte) int64 { return int64(int8(b[0])) }),
		U16: narrowing(2, func(b []byte) int64 { return int64(le.Uint16(b)) }),
		I16: narrowing(2, func(b []byte) int64 { return int64(int16(le.Uint16(b))) }),
		I32: narrowing(4, func(b []byte) int64 { return int64(int32(le.Uint32(b))) }),
		U32: narrowing(4, func(b []byte) int64 { return int64(le.Uint32(b)) }),
		I64: narrowing(8, func(b []byte) int64 { return int64(le.Uint64(b)) }),
		U64: narrowing(8, func(b []byte) int64 { return int64(min(le.Uint64(b), math.MaxInt64)) }),
	})
}

// narrowing decodes elements of width bytes and refuses values outside int32.
func narrowing(width int, element func([]byte) int64) decoder[int32] {
	return func(dst []int32, src []byte) error {
		for i := range dst {
			v := element(src[i*width:])
			if v < math.MinInt32 || v > math.MaxInt32 {
				return fmt.Errorf("value %d does not fit int32: use Bytes", v)
			}
			dst[i] = int32(v)
		}
		return nil
	}
}

// convert returns all elements of a tensor.
func convert[T any](f *File, name string, decoders map[string]decoder[T]) ([]T, error) {
	info, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	if _, ok := decoders[info.DType]; !ok {
		return nil, unconvertible[T](f, info)
	}
	t, err := lookupDType(info.DType)
	if err != nil {
		return nil, err
	}
	values := make([]T, info.Size/(t.bits/8))
	if err := decode(f, info, values, 0, decoders); err != nil {
		return nil, err
	}
	return values, nil
}

func unconvertible[T any](f *File, info Info) error {
	var to T
	return fmt.Errorf("%s: tensor %q is %s, which does not convert to %T: use Bytes", f.name, info.Name, info.DType, to)
}

// decode fills dst with the elements of a tensor from number offset on. It uses a small buffer, so
// that the raw bytes and the values are never both in memory.
func decode[T any](f *File, info Info, dst []T, offset int64, decoders map[string]decoder[T]) error {
	convert, ok := decoders[info.DType]
	if !ok {
		return unconvertible[T](f, info)
	}
	t, err := lookupDType(info.DType)
	if err != nil {
		return err
	}
	width := t.bits / 8
	buffer := make([]byte, min(int64(len(dst))*width, 256<<10))
	for len(dst) > 0 {
		part := dst[:min(int64(len(dst)), int64(len(buffer))/width)]
		raw := buffer[:int64(len(part))*width]
		if err := f.ReadAt(info, raw, offset*width); err != nil {
			return err
		}
		if err := convert(part, raw); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", f.name, info.Name, err)
		}
		dst, offset = dst[len(part):], offset+int64(len(part))
	}
	return nil
}

// HalfToFloat converts an IEEE 754 binary16 exactly: 1 sign bit, 5 bits of exponent with bias 15,
// 10 of fraction.
func HalfToFloat(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent := uint32(h>>10) & 0x1f
	fraction := uint32(h) & 0x3ff
	switch exponent {
	case 0x1f: // infinity, or NaN with its payload
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	case 0: // zero and subnormals are fraction * 2^-24
		v := float32(fraction) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(v))
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}
