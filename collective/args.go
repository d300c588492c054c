package collective

// Checks of the arguments of one rank. An error is published with the call and returned on every
// rank.

import (
	"fmt"
	"unsafe"
)

// checkRanges checks counts and displacements, in elements, of a buffer with n elements.
func checkRanges(c *Comm, side string, n int, counts, displs []int) error {
	if len(counts) != c.Size() || len(displs) != c.Size() {
		return fmt.Errorf("%d %sCounts and %d %sDispls, want %d of each, one per rank", len(counts), side, len(displs), side, c.Size())
	}
	for j := range counts {
		if counts[j] < 0 || displs[j] < 0 || counts[j] > n-displs[j] {
			return fmt.Errorf("%sCounts[%d] = %d at %sDispls[%d] = %d does not fit into a buffer of %d elements",
				side, j, counts[j], side, j, displs[j], n)
		}
	}
	return nil
}

// checkParts checks counts that divide a buffer of whole elements among the ranks. This rank has
// own elements.
func checkParts(c *Comm, counts []int, whole, own int) error {
	if len(counts) != c.Size() {
		return fmt.Errorf("%d counts, want %d, one per rank", len(counts), c.Size())
	}
	for j, n := range counts {
		if n < 0 {
			return fmt.Errorf("counts[%d] = %d is negative", j, n)
		}
	}
	if total := sum(counts); total != whole {
		return fmt.Errorf("counts %v add up to %d, but the whole buffer has %d elements", counts, total, whole)
	}
	if counts[c.rank] != own {
		return fmt.Errorf("counts[%d] = %d, but this rank's part has %d elements", c.rank, counts[c.rank], own)
	}
	return nil
}

func sum(counts []int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// elemSize returns the size of a T in bytes.
func elemSize[T Element]() int { return int(unsafe.Sizeof(*new(T))) }

// sizeOf returns the size of s in bytes.
func sizeOf[T Element](s []T) int { return len(s) * elemSize[T]() }

// bytesOf returns the memory of s.
func bytesOf[T Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), sizeOf(s))
}

// same reports whether a and b are the same memory.
func same[T Element](a, b []T) bool {
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// overlap reports whether a and b share an element.
func overlap[T Element](a, b []T) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	lo, at := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return at < lo+uintptr(sizeOf(a)) && lo < at+uintptr(sizeOf(b))
}
