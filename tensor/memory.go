package tensor

import (
	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/tensor/internal/pages"
)

// largePages is Arrow's allocator on the Go heap, whose memory it asks the system to back by large
// pages. Weights that are read from memory would otherwise miss the cache of address translations
// on every page, which holds them up as much as the reading.
type largePages struct{ memory.GoAllocator }

// Allocate returns bytes, all 0, on a cache line's boundary.
func (a *largePages) Allocate(size int) []byte {
	b := a.GoAllocator.Allocate(size)
	pages.Advise(b)
	return b
}
