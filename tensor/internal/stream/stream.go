// Package stream moves rows between the memories of ranks. It copies rows that this core will not
// read again, and sums rows in the memories of other ranks.
package stream

//go:generate go run ./asm

import (
	"fmt"
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/internal/vec"
)

// kernels tells which assembly a tier has: for whole blocks of copies, and of sums.
type kernels struct{ copies, sums bool }

var active = cpu.Choose("streams", table)

// Copy copies src to dst, which has the same length. It bypasses the caches and does not first read
// what it overwrites. Other cores see the copy before later stores only after Fence.
func Copy(dst, src []byte) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("stream: copy of %d bytes to %d", len(src), len(dst)))
	}
	n := copyLines(dst, src)
	copy(dst[n:], src[n:])
}

// Sum sets dst to the sum over i of weights[i] times the BF16 row at rows[i]. It adds in FP32 and
// in this order, so every tier gives the same bits. Rows have the length of dst. Sum also
// prefetches the rows of the next call, ahead, which has the length of rows.
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
