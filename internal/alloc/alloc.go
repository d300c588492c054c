// Package alloc makes slices whose lengths may have changed in memory. Go ends the whole process if
// make asks for more memory than there is. This package panics instead, and one rank fails.
package alloc

import (
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"unsafe"
)

// Make is make([]T, n). It panics if the machine has less memory.
func Make[T any](n int) []T {
	if size := int(unsafe.Sizeof(*new(T))); size > 0 && n > math.MaxInt/size {
		n = math.MaxInt / size
	}
	Check(n * int(unsafe.Sizeof(*new(T))))
	return make([]T, n)
}

// Check panics if the machine has less memory than bytes.
func Check(bytes int) {
	if most := machine(); bytes > most {
		panic(fmt.Sprintf("alloc: %d bytes, but the machine has %d: a size has changed in memory, or the job is too large", bytes, most))
	}
}

// machine returns the bytes of memory and swap, or the largest number if they are unknown.
var machine = sync.OnceValue(func() int {
	text, _ := os.ReadFile("/proc/meminfo")
	return parse(string(text))
})

// parse adds up the sizes in the text of proc_meminfo(5), which are in KiB.
func parse(text string) (total int) {
	for line := range strings.Lines(text) {
		var name string
		var size int
		if n, _ := fmt.Sscan(line, &name, &size); n == 2 && (name == "MemTotal:" || name == "SwapTotal:") {
			total += size << 10
		}
	}
	if total == 0 {
		return math.MaxInt
	}
	return total
}
