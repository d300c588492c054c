//go:build !amd64 || purego

package stream

import "unsafe"

func copyLines(_, _ []byte) int { return 0 }

// Fetch brings x into the first-level cache.
func Fetch(x []byte) { touch(x) }

// touch reads a byte of every line. Inlined, it would be removed: nobody wants its result.
//
//go:noinline
func touch(x []byte) (bits byte) {
	for i := 0; i < len(x); i += 64 {
		bits |= x[i]
	}
	return bits
}

// Fence makes what was copied visible before anything that is stored later: ordinary copies always are.
func Fence() {}

func sumBlocks(_ []float32, _, _ []unsafe.Pointer, _ []float32) int { return 0 }
