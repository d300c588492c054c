package pages

import (
	"syscall"
	"unsafe"
)

// large is the size of a large page on amd64 and, usually, on arm64.
const large = 2 << 20

// Advise asks for large pages in those parts of b that hold a whole large page. b must hold zeros
// only. A refusal by the system costs only time.
func Advise(b []byte) {
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (large - 1)
	if whole := (len(b) - begin) / large * large; whole > 0 {
		pages := b[begin : begin+whole]
		if syscall.Madvise(pages, syscall.MADV_HUGEPAGE) == nil {
			// Pages become large at their first touch. Memory that was in use before has small
			// pages, so release them first.
			_ = syscall.Madvise(pages, syscall.MADV_DONTNEED)
		}
	}
}
