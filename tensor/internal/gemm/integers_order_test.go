package gemm

// The order of summation of integer products, in plain Go. It holds for bytes, words and tiles,
// with few rows or many.

import (
	"math"

	"spmoe/tensor/format"
)

// blockSums adds row i of a times row j of b to c. Block by block, it scales and adds the exact sum
// of products with one rounding.
func blockSums(a, b Scaled, i, j int, c float32) float32 {
	for block := range a.Scales.Cols {
		sum := 0
		for k := block * format.MXBlock; k < (block+1)*format.MXBlock; k++ {
			sum += int(int8(*at[uint8](a.Codes, i, k))) * int(int8(*at[uint8](b.Codes, j, k)))
		}
		scales := int(*at[uint8](a.Scales, i, block)) + int(*at[uint8](b.Scales, j, block))
		// Exact, so the addition rounds as a fused multiply-add does.
		c += float32(math.Ldexp(float64(sum), scales-2*127-12))
	}
	return c
}
