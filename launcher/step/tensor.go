package step

// Tensors in files: where their elements are, and their values as float64.

import (
	"encoding/binary"
	"fmt"
	"math"
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

// slice keeps n indices of a dimension, from lo on.
func (v view) slice(dim, lo, n int) view {
	v.dims, v.strides = slices.Clone(v.dims), slices.Clone(v.strides)
	v.offset += lo * v.strides[dim]
	v.dims[dim] = n
	return v
}

// span returns the number of elements from the first to the last, or the largest number if it, or
// the number of elements, is beyond any file.
func (v view) span() int64 {
	last, count := 0.0, 1.0
	for i, n := range v.dims {
		last += float64(n-1) * float64(v.strides[i])
		count *= float64(n)
	}
	switch {
	case count == 0:
		return 0
	case max(last, count) >= 1<<40:
		return math.MaxInt64
	}
	return int64(last) + 1
}

// walk calls do for the elements in row-major order, in runs that are next to each other: elements
// [to, to+n) are at from in the span.
func (v view) walk(do func(to, from, n int)) {
	if product(v.dims) > 0 {
		v.walkFrom(0, 0, do)
	}
}

func (v view) walkFrom(to, from int, do func(to, from, n int)) {
	switch last := len(v.dims) - 1; {
	case last < 0:
		do(to, from, 1)
	case last == 0 && v.strides[0] == 1:
		do(to, from, v.dims[0])
	default:
		rest := view{dims: v.dims[1:], strides: v.strides[1:]}
		for i := range v.dims[0] {
			rest.walkFrom(to+i*product(rest.dims), from+i*v.strides[0], do)
		}
	}
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

// entry is a tensor in a file or in memory, or a part of one.
type entry struct {
	view
	file, dtype string
	read        func(p []byte, off int64) error // bytes from off on of the tensor's storage
	joined      []float64                       // if it is in memory
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

// formats are the types of elements by their names in safetensors. torch has the names of the type
// and of its storage in files of torch.save.
var formats = map[string]struct {
	width  int64 // in bytes
	torch  string
	decode func(b []byte) float64
}{
	"F64":     {8, "float64 DoubleStorage", func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }},
	"F32":     {4, "float32 FloatStorage", func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }},
	"F16":     {2, "float16 HalfStorage", func(b []byte) float64 { return float64(safetensors.HalfToFloat(le.Uint16(b))) }},
	"BF16":    {2, "bfloat16 BFloat16Storage", func(b []byte) float64 { return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16)) }},
	"F8_E4M3": {1, "float8_e4m3fn", func(b []byte) float64 { return float64(format.E4M3.Values()[b[0]]) }},
	"F8_E5M2": {1, "float8_e5m2", func(b []byte) float64 { return float64(format.E5M2.Values()[b[0]]) }},
	"I64":     {8, "int64 LongStorage", func(b []byte) float64 { return float64(int64(le.Uint64(b))) }},
	"I32":     {4, "int32 IntStorage", func(b []byte) float64 { return float64(int32(le.Uint32(b))) }},
	"I16":     {2, "int16 ShortStorage", func(b []byte) float64 { return float64(int16(le.Uint16(b))) }},
	"U8":      {1, "uint8 ByteStorage storage.UntypedStorage", func(b []byte) float64 { return float64(b[0]) }},
	"BOOL":    {1, "bool BoolStorage", func(b []byte) float64 { return float64(b[0]) }},
}

// value reads the tensor.
func (e entry) value() (Value, error) {
	of, n, span := formats[e.dtype], product(e.dims), e.span()
	if e.joined == nil && of.decode == nil {
		return Value{}, fmt.Errorf("%s: a tensor of %s: expected floating point numbers of 8 to 64 bits, or integers", e.file, e.dtype)
	}
	if need := 8*int64(n) + span*of.width; span > 1<<40 || need > 1<<26 && need > system.ReadMemory().Available {
		return Value{}, fmt.Errorf("%s: a tensor of %v needs more memory than is available", e.file, e.dims)
	}
	v := Value{reference.Tensor{Dims: e.dims, Data: make([]float64, n)}, e.dtype}
	if e.joined != nil {
		e.walk(func(to, from, n int) { copy(v.Data[to:to+n], e.joined[e.offset+from:]) })
		return v, nil
	}
	raw := make([]byte, span*of.width)
	if err := e.read(raw, int64(e.offset)*of.width); err != nil {
		return Value{}, fmt.Errorf("%s: %w", e.file, err)
	}
	most := e.dtype == "BF16"
	e.walk(func(to, from, n int) {
		dst, src := v.Data[to:to+n], raw[int64(from)*of.width:]
		for i := range dst {
			if most { // of a folder are of this type: no call per element
				dst[i] = float64(math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16))
			} else {
				dst[i] = of.decode(src[int64(i)*of.width:])
			}
		}
	})
	return v, nil
}
