package pages

import (
	"syscall"
	"unsafe"
)

// large is the size of a large page on amd64 and, usually, on arm64.
const large = 2 << 20

// Advise asks for large pages for the whole pages in b, which must hold zeros only. It is only
// advice: a refusal costs time and nothing else.
func Advise(b []byte) {
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (large - 1)
	if whole := (len(b) - begin) / large * large; whole > 0 {
		pages := b[begin : begin+whole]
		if syscall.Madvise(pages, syscall.MADV_HUGEPAGE) == nil {
			// Pages become large when they are first touched. Memory from the garbage collector has
			// small ones, which are given back first.
			_ = syscall.Madvise(pages, syscall.MADV_DONTNEED)
		}
	}
}
