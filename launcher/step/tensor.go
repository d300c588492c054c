package step

// Tensors in files: where their elements are, and their values as float64.

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

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

// flatten makes one dimension of those of batch and sequence. It reports whether there are that
// many tokens.
func (v *Value) flatten(tokens int) bool {
	for i := range v.Dims {
		if product(v.Dims[:i+1]) == tokens && tokens > 0 {
			v.Dims = append([]int{tokens}, v.Dims[i+1:]...)
			return true
		}
	}
	return false
}

// entry is a tensor in a file, or a part of one.
type entry struct {
	view
	file, dtype string
	read        func(p []byte, off int64) error // bytes from off on of the tensor's storage
}

// batchFirst exchanges the first two dimensions if they are sequence and batch, as in Megatron.
func (e entry) batchFirst(names []string) (entry, bool) {
	if len(names) < 2 || len(e.dims) < 2 || !strings.HasPrefix(names[0], "s") || !strings.HasPrefix(names[1], "b") {
		return e, false
	}
	e.dims, e.strides = slices.Clone(e.dims), slices.Clone(e.strides)
	slices.Reverse(e.dims[:2])
	slices.Reverse(e.strides[:2])
	return e, true
}

var le = binary.LittleEndian

// decoders read the elements of each type. widths are their bytes.
var (
	widths   = map[string]int64{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
	decoders = map[string]func(b []byte) float64{
		"F64":     func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) },
		"F32":     func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) },
		"BF16":    func(b []byte) float64 { return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16)) },
		"F16":     func(b []byte) float64 { return float64(safetensors.HalfToFloat(le.Uint16(b))) },
		"F8_E4M3": func(b []byte) float64 { return float64(format.E4M3.Values()[b[0]]) },
		"F8_E5M2": func(b []byte) float64 { return float64(format.E5M2.Values()[b[0]]) },
		"I64":     func(b []byte) float64 { return float64(int64(le.Uint64(b))) },
		"I32":     func(b []byte) float64 { return float64(int32(le.Uint32(b))) },
		"I16":     func(b []byte) float64 { return float64(int16(le.Uint16(b))) },
		"I8":      func(b []byte) float64 { return float64(int8(b[0])) },
		"U8":      func(b []byte) float64 { return float64(b[0]) },
		"BOOL":    func(b []byte) float64 { return float64(b[0]) },
	}
)

// value reads the tensor.
func (e entry) value() (Value, error) {
	width, decode := widths[e.dtype], decoders[e.dtype]
	n, span := product(e.dims), e.span()
	need, free := 8*int64(n)+span*width, int64(0)
	if need > 1<<26 { // looking takes longer than reading what is smaller
		free = system.ReadMemory().Available
	}
	switch {
	case decode == nil:
		return Value{}, fmt.Errorf("%s: a tensor of %s: expected floating point numbers of 8 to 64 bits, or integers", e.file, e.dtype)
	case span > 1<<44 || n > 1<<40 || free > 0 && need > free:
		return Value{}, fmt.Errorf("%s: a tensor of %v needs %s of memory, %s are available", e.file, e.dims, system.Bytes(need), system.Bytes(free))
	}
	raw := make([]byte, span*width)
	if err := e.read(raw, int64(e.offset)*width); err != nil {
		return Value{}, fmt.Errorf("%s: %w", e.file, err)
	}
	v, most := Value{reference.Tensor{Dims: e.dims, Data: make([]float64, n)}, e.dtype}, e.dtype == "BF16"
	e.walk(func(to, from, n int) {
		dst, src := v.Data[to:to+n], raw[int64(from)*width:]
		for i := range dst {
			if most { // of a folder are of this type: no call per element
				dst[i] = float64(math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16))
			} else {
				dst[i] = decode(src[int64(i)*width:])
			}
		}
	})
	return v, nil
}
