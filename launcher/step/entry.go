package step

// Tensors in files: what is known without reading them, and their values as float64.

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/system"
	"spmoe/moe/reference"
	"spmoe/tensor/format"
)

// view says where the elements of a tensor are, in elements from the start of its storage.
type view struct {
	offset        int
	dims, strides []int
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// rowMajor is the view of a tensor without gaps.
func rowMajor(dims []int) view {
	v := view{dims: dims, strides: make([]int, len(dims))}
	for i := range dims {
		v.strides[i] = product(dims[i+1:])
	}
	return v
}

// slice keeps n indices of a dimension, from lo on in steps.
func (v view) slice(dim, lo, n, step int) view {
	v.dims, v.strides = slices.Clone(v.dims), slices.Clone(v.strides)
	v.offset += lo * v.strides[dim]
	v.dims[dim] = n
	v.strides[dim] *= step
	return v
}

// swap exchanges two dimensions.
func (v view) swap(a, b int) view {
	v = v.slice(a, 0, v.dims[a], 1)
	v.dims[a], v.dims[b] = v.dims[b], v.dims[a]
	v.strides[a], v.strides[b] = v.strides[b], v.strides[a]
	return v
}

// span returns the number of elements from the first to the last, or the largest number if it is
// beyond any file.
func (v view) span() int64 {
	last, count := uint64(0), uint64(1)
	for i, n := range v.dims {
		if n == 0 {
			return 0
		}
		high, step := bits.Mul64(uint64(n-1), uint64(v.strides[i]))
		above, total := bits.Mul64(count, uint64(n))
		if last, count = last+step, total; high|above != 0 || (last|step|total)>>44 != 0 {
			return math.MaxInt64
		}
	}
	return int64(last) + 1
}

// walk calls do for the elements in row-major order, in runs that are next to each other: elements
// [to, to+n) are at from in the span.
func (v view) walk(do func(to, from, n int)) {
	run, at := 1, make([]int, len(v.dims))
	if d := len(v.dims); d > 0 && v.strides[d-1] == 1 {
		run = max(v.dims[d-1], 1)
	}
	for to := 0; to < product(v.dims); to += run {
		from := 0
		for d := range at {
			from += at[d] * v.strides[d]
		}
		do(to, from, run)
		for d, carry := len(at)-1, run; d >= 0 && carry > 0; d-- {
			at[d] += carry
			carry = at[d] / v.dims[d]
			at[d] %= v.dims[d]
		}
	}
}

// pick returns the elements of a view of the value.
func (v Value) pick(from view) Value {
	result := Value{reference.Tensor{Dims: from.dims, Data: make([]float64, product(from.dims))}, v.DType}
	from.walk(func(to, at, n int) { copy(result.Data[to:to+n], v.Data[from.offset+at:]) })
	return result
}

// entry is a tensor in a file, or a part of one.
type entry struct {
	view
	file, dtype string
	read        func(p []byte, off int64) error // bytes from off on of the tensor's storage
}

// elementType says how an element is stored.
type elementType struct {
	width  int
	decode func(b []byte) float64
}

var le = binary.LittleEndian

// elementTypes are the types that are read.
var elementTypes = map[string]elementType{
	"F64":     {8, func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }},
	"F32":     {4, nil},
	"BF16":    {2, nil},
	"F16":     {2, func(b []byte) float64 { return float64(safetensors.HalfToFloat(le.Uint16(b))) }},
	"F8_E4M3": {1, func(b []byte) float64 { return float64(format.E4M3.Values()[b[0]]) }},
	"F8_E5M2": {1, func(b []byte) float64 { return float64(format.E5M2.Values()[b[0]]) }},
	"I64":     {8, func(b []byte) float64 { return float64(int64(le.Uint64(b))) }},
	"I32":     {4, func(b []byte) float64 { return float64(int32(le.Uint32(b))) }},
	"I16":     {2, func(b []byte) float64 { return float64(int16(le.Uint16(b))) }},
	"I8":      {1, func(b []byte) float64 { return float64(int8(b[0])) }},
	"U8":      {1, func(b []byte) float64 { return float64(b[0]) }},
	"BOOL":    {1, func(b []byte) float64 { return float64(b[0]) }},
}

// value reads the tensor.
func (e entry) value() (Value, error) {
	kind, ok := elementTypes[e.dtype]
	if !ok {
		return Value{}, fmt.Errorf("%s: a tensor of %s: expected floating point numbers of 8 to 64 bits, or integers", e.file, e.dtype)
	}
	n, span := product(e.dims), e.span()
	if need, free := 8*int64(n)+span*int64(kind.width), system.ReadMemory().Available; span > 1<<44 || n > 1<<40 || free > 0 && need > free {
		return Value{}, fmt.Errorf("%s: a tensor of %v needs %s of memory, %s are available", e.file, e.dims, system.Bytes(need), system.Bytes(free))
	}
	raw := make([]byte, span*int64(kind.width))
	if err := e.read(raw, int64(e.offset)*int64(kind.width)); err != nil {
		return Value{}, fmt.Errorf("%s: %w", e.file, err)
	}
	v := Value{reference.Tensor{Dims: e.dims, Data: make([]float64, n)}, e.dtype}
	e.walk(func(to, from, n int) {
		dst, src := v.Data[to:to+n], raw[from*kind.width:]
		switch e.dtype { // without a call per element, because most are of these types
		case "BF16":
			for i := range dst {
				dst[i] = float64(math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16))
			}
		case "F32":
			for i := range dst {
				dst[i] = float64(math.Float32frombits(le.Uint32(src[4*i:])))
			}
		default:
			for i := range dst {
				dst[i] = kind.decode(src[i*kind.width:])
			}
		}
	})
	return v, nil
}
