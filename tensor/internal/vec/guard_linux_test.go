package vec

// Slices between pages without access: a kernel that reads outside them crashes.

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// fenced returns n elements that end, or begin, at a page without access.
func fenced[T any](t *testing.T, n int, atEnd bool) []T {
	page := os.Getpagesize()
	size := n * int(unsafe.Sizeof(*new(T)))
	inner := (size + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, inner+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	for _, fence := range [][]byte{mem[:page], mem[page+inner:]} {
		if err := syscall.Mprotect(fence, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	start := page
	if atEnd {
		start += inner - size
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem[start:]))), n)
}

func TestNoAccessOutside(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 10))
		for _, n := range []int{1, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1023, 1024} {
			for _, atEnd := range []bool{false, true} {
				var rows [mostRows][]float32
				for i := range rows {
					rows[i] = fenced[float32](t, n, atEnd)
					fill(rng, rows[i], 0)
				}
				for _, op := range operations {
					op.run(rows[:op.out], rows[op.out:op.out+op.in])
				}
				var lines [mostRows]line
				for i := range lines {
					lines[i] = line{rows[i], fenced[uint16](t, n, atEnd)}
				}
				for _, op := range operations16 {
					out := op.float32Form(t).out
					op.run(lines[:out], lines[out:len(op.types)])
				}
				Split(fenced[float32](t, SplitLen(n), atEnd), rows[0])
				SquaresBF16(lines[0].half)
				Round(lines[0].half, rows[0])
				Widen(rows[1], lines[0].half)
			}
		}
	})
}
