//go:build !purego

package stream

import (
	"unsafe"

	"spmoe/tensor/cpu"
)

var table = cpu.Table[kernels]{
	cpu.Generic: {},
	cpu.AVX2:    {copies: true},
	cpu.AVX512:  {copies: true, sums: true},
}

// copyLines copies all whole blocks and returns their length in bytes.
func copyLines(dst, src []byte) int {
	blocks := len(dst) / 256
	to := unsafe.Pointer(unsafe.SliceData(dst))
	if !active.copies || blocks == 0 || uintptr(to)%32 != 0 {
		return 0
	}
	copyAVX2(to, unsafe.Pointer(unsafe.SliceData(src)), blocks)
	return 256 * blocks
}

// Fence makes the results of Copy visible before all later stores.
func Fence() { fence() }

// sumBlocks sums all whole blocks and returns their length in elements.
func sumBlocks(dst []float32, rows, ahead []unsafe.Pointer, weights []float32) int {
	const columns = 128
	blocks := len(dst) / columns
	if !active.sums || blocks == 0 || len(rows) == 0 {
		return 0
	}
	sumAVX512(unsafe.Pointer(&dst[0]), unsafe.Pointer(&rows[0]), unsafe.Pointer(&ahead[0]), unsafe.Pointer(&weights[0]), len(rows), blocks)
	return columns * blocks
}
