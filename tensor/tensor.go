// Package tensor provides dense tensors in Arrow buffers and the CPU kernels of a transformer:
// matrix products, normalization, attention, loss and the optimizer.
//
// A [Tensor] is a view of an Arrow buffer. It is cheap to copy, and slicing it allocates nothing.
// Parameters come from [New]. The tensors of one training step come from an [Arena] and are
// released together. A [Matrix] is a two-dimensional view of a tensor, from [Tensor.Mat].
//
// Every kernel takes an [*Exec] first. It holds the arena, the scratch memory and the threads of
// one rank. Activations and weights are FP32 or BF16. [Scaled] operands are block-scaled codes of 8
// or fewer bits. Every kernel computes in FP32 and rounds once when it stores. Results do not
// depend on the number of threads.
package tensor

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow/memory"
)

// MaxDims is the largest number of dimensions of a Tensor.
const MaxDims = 4

// Alignment is the byte alignment of every tensor from New or an Arena.
const Alignment = 64

// Tensor is a dense, row-major array in an Arrow buffer. The zero Tensor is empty.
type Tensor struct {
	buf   *memory.Buffer
	data  unsafe.Pointer // inside buf
	dims  [MaxDims]int
	ndim  int8
	dtype DType
}

// New returns a zeroed tensor with an Arrow buffer of its own.
func New(dtype DType, dims ...int) Tensor { return NewIn(nil, dtype, dims...) }

// NewIn is New with memory from allocator. Nil means Go's heap.
func NewIn(allocator memory.Allocator, dtype DType, dims ...int) Tensor {
	bytes := checkedLen(dims) * dtype.Size()
	if _, dry := allocator.(DryMemory); dry {
		return NewDry(dtype, dims...)
	}
	if allocator == nil {
		// Go's heap memory is zeroed and is touched at the first use. By then the ranks run in
		// parallel.
		buf := memory.NewResizableBuffer(&largePages{})
		buf.Resize(bytes)
		return view(buf, 0, dtype, dims)
	}
	buf := memory.NewResizableBuffer(allocator)
	buf.Resize(bytes)
	clear(buf.Bytes())
	return view(buf, 0, dtype, dims)
}

// FromBytes returns a tensor in the caller's memory b and keeps its contents. b must begin at a
// multiple of Alignment and outlive the tensor.
func FromBytes(b []byte, dtype DType, dims ...int) Tensor {
	if n := checkedLen(dims) * dtype.Size(); len(b) < n || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Alignment != 0 {
		panic(fmt.Sprintf("tensor: %d bytes at %p for a tensor of %d, aligned to %d", len(b), unsafe.SliceData(b), n, Alignment))
	}
	return view(memory.NewBufferBytes(b), 0, dtype, dims)
}

// At returns a tensor at an address outside Go's heap, such as that of a NumPy array. The memory
// may have any alignment and must outlive the tensor.
func At(data unsafe.Pointer, dtype DType, dims ...int) Tensor {
	return view(memory.NewBufferBytes(unsafe.Slice((*byte)(data), checkedLen(dims)*dtype.Size())), 0, dtype, dims)
}

// view returns the tensor whose first byte is at offset off in buf.
func view(buf *memory.Buffer, off int, dtype DType, dims []int) Tensor {
	t := Tensor{buf: buf, dtype: dtype, ndim: int8(len(dims))}
	copy(t.dims[:], dims)
	if bytes := buf.Bytes(); len(bytes) > 0 {
		t.data = unsafe.Pointer(unsafe.SliceData(bytes[off:]))
	}
	return t
}

func checkedLen(dims []int) int {
	if len(dims) > MaxDims {
		panic(fmt.Sprintf("tensor: %d dimensions, at most %d are supported", len(dims), MaxDims))
	}
	n := 1
	for _, d := range dims {
		if d < 0 {
			panic("tensor: negative dimension")
		}
		n *= d
	}
	return n
}

// Buffer returns the Arrow buffer that holds the elements. Other tensors may share the buffer.
func (t Tensor) Buffer() *memory.Buffer { return t.buf }

// DType returns the element type.
func (t Tensor) DType() DType { return t.dtype }

// NDim returns the number of dimensions.
func (t Tensor) NDim() int { return int(t.ndim) }

// Dim returns the extent of dimension i. A negative i counts from the last dimension.
func (t Tensor) Dim(i int) int {
	at := i
	if at < 0 {
		at += int(t.ndim)
	}
	if at < 0 || at >= int(t.ndim) {
		panic(fmt.Sprintf("tensor: dimension %d of a tensor of %d dimensions", i, t.ndim))
	}
	return t.dims[at]
}

// Dims returns the extents in a new slice.
func (t Tensor) Dims() []int { return append([]int(nil), t.dims[:t.ndim]...) }

// Len returns the number of elements.
func (t Tensor) Len() int {
	if t.buf == nil {
		return 0
	}
	n := 1
	for _, d := range t.dims[:t.ndim] {
		n *= d
	}
	return n
}

// Valid reports whether the tensor refers to a buffer. The zero Tensor does not.
func (t Tensor) Valid() bool { return t.buf != nil }

// F32 returns the elements of an FP32 tensor.
func (t Tensor) F32() []float32 { return elements[float32](t, FP32) }

// BF16 returns the elements of a BF16 tensor.
func (t Tensor) BF16() []BFloat16 { return elements[BFloat16](t, BF16) }

// I32 returns the elements of an INT32 tensor.
func (t Tensor) I32() []int32 { return elements[int32](t, INT32) }

// U8 returns the elements of a UINT8 tensor.
func (t Tensor) U8() []uint8 { return elements[uint8](t, UINT8) }

// U64 returns the bytes of a tensor of UINT8 as words of 8 bytes.
func (t Tensor) U64() []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(t.U8()))), t.Len()/8)
}

func elements[T any](t Tensor, want DType) []T {
	if t.dtype != want {
		panic(fmt.Sprintf("tensor: %v elements requested from a %v tensor", want, t.dtype))
	}
	return unsafe.Slice((*T)(t.data), t.Len())
}

// Bytes returns the elements as raw little-endian bytes.
func (t Tensor) Bytes() []byte {
	return unsafe.Slice((*byte)(t.data), t.Len()*t.dtype.Size())
}

// Slice returns rows [lo, hi) of the first dimension, which share memory.
func (t Tensor) Slice(lo, hi int) Tensor {
	if lo < 0 || hi < lo || hi > t.dims[0] {
		panic(fmt.Sprintf("tensor: slice [%d, %d) of a first dimension of %d", lo, hi, t.dims[0]))
	}
	row := t.dtype.Size()
	for _, d := range t.dims[1:t.ndim] {
		row *= d
	}
	if hi > lo {
		t.data = unsafe.Add(t.data, lo*row)
	}
	t.dims[0] = hi - lo
	return t
}

// Index returns element i of the first dimension. The result has one dimension less and shares
// memory.
func (t Tensor) Index(i int) Tensor {
	s := t.Slice(i, i+1)
	copy(s.dims[:], s.dims[1:])
	s.dims[MaxDims-1] = 0
	s.ndim--
	return s
}

// Reshape returns the same elements with other extents.
func (t Tensor) Reshape(dims ...int) Tensor {
	if checkedLen(dims) != t.Len() {
		panic(fmt.Sprintf("tensor: cannot reshape %v to %v", t.Dims(), append([]int(nil), dims...)))
	}
	t.dims = [MaxDims]int{}
	copy(t.dims[:], dims)
	t.ndim = int8(len(dims))
	return t
}

// Zero sets every element to zero.
func (t Tensor) Zero() { clear(t.Bytes()) }
