package pages

import (
	"syscall"
	"unsafe"
)

// large is the size of a large page on amd64 and, usually, on arm64.
const large = 2 << 20

// Advise asks for large pages where all of a page lies in b, which must hold zeros only. It is no
// more than advice: a refusal costs only time.
func Advise(b []byte) {
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (large - 1)
	if whole := (len(b) - begin) / large * large; whole > 0 {
		pages := b[begin : begin+whole]
		if syscall.Madvise(pages, syscall.MADV_HUGEPAGE) == nil {
			// Pages become large when they are first touched. Memory that was collected has small
			// ones: give them back.
			_ = syscall.Madvise(pages, syscall.MADV_DONTNEED)
		}
	}
}
