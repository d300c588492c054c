// Package stream moves rows between the memories of ranks. It copies data that the core will not
// read again. It also sums rows that other ranks have left in their own memory.
package stream

//go:generate go run ./_asm

import (
	"fmt"
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/internal/vec"
)

// kernels records which kernels of a tier are in assembly. They process whole blocks.
type kernels struct{ copies, sums bool }

var active = cpu.Choose("streams", table)

// Copy copies src to dst, of the same length, past the caches. It does not first read the memory
// that it overwrites. Other cores may see the copy out of order until Fence.
func Copy(dst, src []byte) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("stream: copy of %d bytes to %d", len(src), len(dst)))
	}
	n := copyLines(dst, src)
	copy(dst[n:], src[n:])
}

// Sum sets dst to the sum over i of weights[i] times the BF16 row at rows[i], which has the length
// of dst. It sums in FP32 and in that order. Every tier gives the same bits. Meanwhile it
// prefetches ahead, the rows of the next call. ahead has the length of rows.
func Sum(dst []float32, rows, ahead []unsafe.Pointer, weights []float32) {
	if len(weights) != len(rows) || len(ahead) != len(rows) {
		panic(fmt.Sprintf("stream: %d weights for %d rows, and %d ahead", len(weights), len(rows), len(ahead)))
	}
	n := sumBlocks(dst, rows, ahead, weights)
	rest := dst[n:]
	clear(rest)
	for i, row := range rows {
		vec.AddScaledBF16(rest, weights[i], unsafe.Slice((*uint16)(unsafe.Add(row, 2*n)), len(rest)))
	}
}
