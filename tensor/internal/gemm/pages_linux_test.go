package gemm

import (
	"syscall"
	"testing"
	"unsafe"
)

// largePages is memory as weights in training have it, until b ends.
func largePages(b *testing.B, n int) []byte {
	const page = 2 << 20
	memory, err := syscall.Mmap(-1, 0, n+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = syscall.Munmap(memory) })
	whole := memory[-uintptr(unsafe.Pointer(&memory[0]))%page:][:n]
	_ = syscall.Madvise(whole, syscall.MADV_HUGEPAGE) // smaller ones will do
	return whole
}
