package heap

// An Arrow allocator of memory in a rank's region.

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow/memory"
)

// regionUse is a process's use of a region. Freed memory serves requests of the same size.
type regionUse struct {
	mu   sync.Mutex
	next int64
	free map[int][]int64 // offsets by size
}

// FullError says that a region is full.
type FullError struct {
	Rank         int
	Region, Used int64 // bytes
	Asked        int
}

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf("heap: rank %d asked for %d bytes with %d of its %d bytes of shared memory in use: give the ranks a larger heap",
		e.Rank, e.Asked, e.Used, e.Region)
}

// Allocator returns an allocator of memory in a rank's region. The memory is zeroed, aligned to
// cache lines, and visible to every rank. Only the rank's own process may use the allocator. It
// panics with a [*FullError] if the region is full. Goroutine ranks get ordinary memory.
func (h *Heap) Allocator(rank int) memory.Allocator {
	if !h.Shared() {
		return memory.DefaultAllocator
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.used[rank] == nil {
		h.used[rank] = &regionUse{free: map[int][]int64{}}
	}
	return &allocator{h, rank, h.used[rank]}
}

type allocator struct {
	heap *Heap
	rank int
	*regionUse
}

const alignment = 64

// Within returns the address of size bytes from an offset, if all of them are in the region of a
// rank, or all in its vault.
func (h *Heap) Within(rank int, offset, size int64) (p unsafe.Pointer, ok bool) {
	if !h.part.has(rank) || size < 0 {
		return nil, false
	}
	inside := func(begin, room int64) bool {
		return offset >= begin && offset <= begin+room && size <= begin+room-offset
	}
	at, vaults := int64(h.index(rank)), h.start+int64(h.part.Ranks)*h.region
	if !inside(h.start+at*h.region, h.region) && !inside(vaults+at*h.vault, h.vault) {
		return nil, false
	}
	return unsafe.Add(h.base, offset), true
}

// Allocate implements [memory.Allocator].
func (a *allocator) Allocate(size int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if int64(size) > a.heap.region { // before rounding up, which could overflow
		panic(&FullError{a.rank, a.heap.region, a.next, size})
	}
	bytes := (size + alignment - 1) &^ (alignment - 1)
	if bytes == 0 {
		return make([]byte, 0)
	}
	var offset int64
	if list := a.free[bytes]; len(list) > 0 {
		offset, a.free[bytes] = list[len(list)-1], list[:len(list)-1]
		clear(unsafe.Slice((*byte)(a.heap.At(offset)), bytes))
	} else {
		if a.next+int64(bytes) > a.heap.region {
			panic(&FullError{a.rank, a.heap.region, a.next, size})
		}
		offset = a.heap.start + int64(a.heap.index(a.rank))*a.heap.region + a.next
		a.heap.clearUsed(a.rank, a.next, int64(bytes))
		a.next += int64(bytes)
	}
	return unsafe.Slice((*byte)(a.heap.At(offset)), bytes)[:size]
}

// clearUsed zeroes what an earlier generation, or an earlier process of the rank, has left in
// memory that is allocated.
func (h *Heap) clearUsed(rank int, at, bytes int64) {
	used := &h.line(rank).used
	if before := used.Load(); at < before {
		clear(unsafe.Slice((*byte)(h.At(h.start+int64(h.index(rank))*h.region+at)), min(bytes, before-at)))
	}
	used.Store(max(used.Load(), at+bytes))
}

// Reallocate implements [memory.Allocator].
func (a *allocator) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		return b[:size]
	}
	larger := a.Allocate(size)
	copy(larger, b)
	a.Free(b)
	return larger
}

// Free implements [memory.Allocator].
func (a *allocator) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	offset, ok := a.heap.Offset(unsafe.Pointer(unsafe.SliceData(b)))
	if !ok {
		panic("heap: memory to free is not of the heap")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free[cap(b)] = append(a.free[cap(b)], offset)
}
