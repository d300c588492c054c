// Package alloc makes slices whose lengths may have changed in memory. Go ends the whole process if
// make asks for more memory than there is. This package panics instead, and one rank fails.
package alloc

import (
	"fmt"
	"math"
	"os"
	"sync"
	"unsafe"
)

// Make is make([]T, n). It panics if the machine has less memory.
func Make[T any](n int) []T {
	Check(n, int(unsafe.Sizeof(*new(T))))
	return make([]T, n)
}

// Check panics if the machine has less memory than n elements of size bytes.
func Check(n, size int) {
	if most := machine(); n > most/max(size, 1) {
		panic(fmt.Sprintf("alloc: %d elements of %d bytes, but the machine has %d bytes: a length has changed in memory, or the job is too large", n, size, most))
	}
}

// machine returns the bytes of memory, or the largest number if it is unknown.
var machine = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/meminfo")
	var kilobytes int
	if n, _ := fmt.Sscanf(string(text), "MemTotal: %d kB", &kilobytes); n == 0 {
		return math.MaxInt
	}
	return kilobytes << 10
})
