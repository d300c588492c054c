package gemm

// The order of summation of products of integers, in plain Go: of bytes, of words, of tiles, with
// few rows or many.

import (
	"math"

	"spmoe/tensor/format"
)

// blockSums adds row i of a times row j of b to c: block after block, the exact sum of products,
// which is scaled and added with one rounding.
func blockSums(a, b Scaled, i, j int, c float32) float32 {
	for block := range a.Scales.Cols {
		sum := 0
		for k := block * format.MXBlock; k < (block+1)*format.MXBlock; k++ {
			sum += int(int8(*at[uint8](a.Codes, i, k))) * int(int8(*at[uint8](b.Codes, j, k)))
		}
		scales := int(*at[uint8](a.Scales, i, block)) + int(*at[uint8](b.Scales, j, block))
		c += float32(math.Ldexp(float64(sum), scales-2*127-12)) // exact, so that the addition rounds as a fused multiply-add does
	}
	return c
}
