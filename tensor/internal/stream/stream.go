// Package stream moves rows between the memories of ranks: copies that their core will not read
// again, and sums of rows that others have left where they are.
package stream

//go:generate go run ./asm

import (
	"fmt"
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/internal/vec"
)

// kernels says what a tier has assembly for: whole blocks of copies, and of sums.
type kernels struct{ copies, sums bool }

var active = cpu.Choose("streams", table)

// Copy copies src to dst, of the same length, past the caches and without first reading what is
// overwritten. The copy is visible to other cores in order only after Fence.
func Copy(dst, src []byte) {
	if len(dst) != len(src) {
		panic(fmt.Sprintf("stream: copy of %d bytes to %d", len(src), len(dst)))
	}
	n := copyLines(dst, src)
	copy(dst[n:], src[n:])
}

// Sum sets dst to the sum over i of weights[i] times the BF16 row at rows[i], of the length of dst,
// in FP32 and in that order. Every tier gives the same bits. Meanwhile it fetches the rows ahead,
// as many, which the next call will want.
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
