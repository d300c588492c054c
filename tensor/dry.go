package tensor

// A dry run counts memory and does no arithmetic. It runs the code that allocates, so that nothing
// has to repeat what that code does.

import (
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow/memory"
)

// dryCount counts what an arena without memory holds.
type dryCount struct {
	label *string        // of what is allocated now
	times *int           // that it is counted; nil: once
	held  map[string]int // bytes since the arena was empty, by label
	most  map[string]int // held when it had most
	peak  string         // label of the last bytes at the peak
}

// NewDryExec returns an Exec with one thread for a dry run. Kernels go as far as their own
// allocations. The tensors of its arena have shapes and no memory: reading or writing an element is
// a fault. [Arena.Peak] then tells how much memory a real run needs in an arena of one piece, and
// [Exec.PackingBytes] what products need besides.
func NewDryExec() *Exec {
	once := 1
	return &Exec{Arena: Arena{dry: &dryCount{label: new(string)}}, dry: true, room: &PackingSize{}, times: &once}
}

// Repeat says that what is allocated from now on stands for n layers, in arenas other than that of
// the Exec, in a dry run.
func (ex *Exec) Repeat(n int) {
	if ex.dry {
		*ex.times = n
	}
}

// Label names what is allocated from now on, in a dry run.
func (ex *Exec) Label(name string) {
	if ex.dry {
		*ex.Arena.dry.label = name
	}
}

// count allocates bytes that do not exist.
func (a *Arena) count(bytes int) {
	d := a.dry
	if d.times != nil {
		bytes *= *d.times
	}
	if d.held == nil {
		d.held = map[string]int{}
	}
	d.held[*d.label] += bytes
	if a.offset += bytes; a.offset > a.peak {
		a.peak, d.peak = a.offset, *d.label
	}
}

// end is called when the arena becomes empty. Nothing was released before.
func (d *dryCount) end(peak int) {
	sum := 0
	for _, n := range d.held {
		sum += n
	}
	if sum == peak {
		d.most = d.held
	}
	d.held = nil
}

// Labels returns what an arena of a dry run has held at most, by label, if it was released as a
// whole only, and the label of what was allocated last at its peak.
func (a *Arena) Labels() (most map[string]int, peak string) { return a.dry.most, a.dry.peak }

// Dry reports whether the Exec is that of a dry run.
func (ex *Exec) Dry() bool { return ex != nil && ex.dry }

// NewDry returns a tensor without memory. Its address overlaps no other one's.
func NewDry(dtype DType, dims ...int) Tensor {
	bytes := (checkedLen(dims)*dtype.Size() + Alignment - 1) &^ (Alignment - 1)
	address := firstNowhere + nowhere.Add(uint64(bytes))%(1<<61) - uint64(bytes)
	t := Tensor{buf: &noMemory, data: *(*unsafe.Pointer)(unsafe.Pointer(&address)), dtype: dtype, ndim: int8(len(dims))}
	copy(t.dims[:], dims)
	return t
}

var noMemory memory.Buffer

// Tensors without memory have addresses that no process and no heap has, from firstNowhere+nowhere
// on.
const firstNowhere = 1 << 62

var nowhere atomic.Uint64

// PackingBytes returns the bytes of the packing buffers for the products of a dry run.
func (ex *Exec) PackingBytes() float64 { return ex.room.Bytes() }

// DryMemory is the allocator of a dry run. Its memory does not exist.
type DryMemory struct{}

// Allocate implements memory.Allocator.
func (DryMemory) Allocate(size int) []byte { return NewDry(UINT8, size).Bytes() }

// Reallocate implements memory.Allocator.
func (d DryMemory) Reallocate(size int, _ []byte) []byte { return d.Allocate(size) }

// Free implements memory.Allocator.
func (DryMemory) Free([]byte) {}

// NewArena returns an arena with room for the given bytes, with memory as that of ex.
func (ex *Exec) NewArena(bytes int) *Arena {
	a := &Arena{Allocator: ex.Allocator, Poison: ex.Poison, First: bytes}
	if ex.dry {
		a.dry = &dryCount{label: ex.Arena.dry.label, times: ex.times}
	}
	return a
}

// NewLasting returns a tensor with memory of its own, in a dry run without.
func (ex *Exec) NewLasting(dtype DType, dims ...int) Tensor {
	if ex.dry {
		return NewDry(dtype, dims...)
	}
	return New(dtype, dims...)
}

// Ints returns n integers in an arena. They have memory in a dry run too.
func (a *Arena) Ints(n int) []int32 {
	t := a.New(INT32, n)
	if a.dry != nil {
		return make([]int32, n)
	}
	return t.I32()
}
