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
	pages := whole(b)
	if len(pages) > 0 && syscall.Madvise(pages, syscall.MADV_HUGEPAGE) == nil {
		// Pages become large at their first touch. Memory that was in use before has small pages,
		// so release them first.
		_ = syscall.Madvise(pages, syscall.MADV_DONTNEED)
	}
}

// Release gives the large pages that lie in b back to the system. They read as zeros afterwards. It
// returns how many bytes at the beginning of b are left. b must be private memory.
func Release(b []byte) (left int) {
	pages := whole(b)
	if len(pages) == 0 || syscall.Madvise(pages, syscall.MADV_DONTNEED) != nil {
		return len(b)
	}
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(pages))) - uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// whole returns the part of b that consists of whole large pages.
func whole(b []byte) []byte {
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (large - 1)
	n := (len(b) - begin) / large * large
	if n <= 0 {
		return nil
	}
	return b[begin : begin+n]
}
