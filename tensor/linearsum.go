package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// LinearSum computes dst = a·x + b·y elementwise in FP32, and rounds once. The tensors have one
// length and are FP32 or BF16, each of its own. dst may be x or y.
func LinearSum(ex *Exec, dst Tensor, a float32, x Tensor, b float32, y Tensor, sums LinearSums) {
	job := linearSum{flat(dst), flat(x), flat(y), a, b, sums}
	for _, t := range [...]Tensor{dst, x, y} {
		if t.Len() != dst.Len() || !t.dtype.float() {
			panic(fmt.Sprintf("tensor: linear sum of %d %v and %d %v into %d %v", x.Len(), x.dtype, y.Len(), y.dtype, dst.Len(), dst.dtype))
		}
	}
	forRows(ex, runs(dst.Len()), dst.Len(), job, linearSumRuns)
}

// LinearSums are the checksums that LinearSum adds to; nil: none.
type LinearSums struct{ X, Y, Dst *Sum }

// linearSum holds the arguments of LinearSum, in one dimension.
type linearSum struct {
	dst, x, y Tensor
	a, b      float32
	sums      LinearSums
}

// linearSumRuns computes runs [lo, hi).
func linearSumRuns(_ *Exec, s linearSum, lo, hi int) {
	var buffer [runLen]float32
	for ; lo < hi; lo++ {
		first, last := lo*runLen, min((lo+1)*runLen, s.dst.Len())
		sum := buffer[:last-first]
		addWords(s.sums.X, s.x.Slice(first, last)) // before dst, which may be x, is written
		addWords(s.sums.Y, s.y.Slice(first, last))
		if s.x.dtype == BF16 {
			vec.Widen(sum, s.x.Mat().bf16Row(0)[first:last])
			vec.Scale(sum, s.a, sum)
		} else {
			vec.Scale(sum, s.a, s.x.F32()[first:last])
		}
		if s.y.dtype == BF16 {
			vec.AddScaledBF16(sum, s.b, s.y.Mat().bf16Row(0)[first:last])
		} else {
			vec.AddScaled(sum, s.b, s.y.F32()[first:last])
		}
		if s.dst.dtype == BF16 {
			vec.Round(s.dst.Mat().bf16Row(0)[first:last], sum)
		} else {
			copy(s.dst.F32()[first:last], sum)
		}
		addWords(s.sums.Dst, s.dst.Slice(first, last))
	}
}
