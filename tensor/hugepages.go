package tensor

import (
	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/tensor/alloc"
	"spmoe/tensor/internal/pages"
)

// largePages is Arrow's allocator on the Go heap. It asks the operating system to back the memory
// with large pages. Without them, reading weights misses the TLB on every page, which costs as much
// time as the reading itself.
type largePages struct{ memory.GoAllocator }

// Allocate returns size zeroed bytes, aligned to a cache line.
func (a *largePages) Allocate(size int) []byte {
	alloc.Check(size, 1)
	b := a.GoAllocator.Allocate(size)
	pages.Advise(b)
	return b
}
