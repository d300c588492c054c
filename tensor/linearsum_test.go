package tensor

import (
	"math"
	"testing"
)

// A linear sum has one rounding of its result, whatever the types, the length and the number of
// threads, and may replace either operand.
func TestLinearSum(t *testing.T) {
	const a, b = 0.75, -1.5
	for _, n := range []int{0, 1, 77, 3*runLen + 5} {
		for _, types := range [][3]DType{{FP32, FP32, FP32}, {BF16, FP32, FP32}, {BF16, BF16, FP32}, {FP32, FP32, BF16}, {BF16, BF16, BF16}} {
			x, y := random(1, types[1], n), random(2, types[2], n)
			want := mapped(func(v ...float64) float64 { return a*v[0] + b*v[1] }, values(x.Mat()), values(y.Mat()))
			bound := scaled(mapped(func(v ...float64) float64 { return math.Abs(v[0]) + 2 }, want), 0x1p-22)
			if types[0] == BF16 {
				bound = scaled(mapped(func(v ...float64) float64 { return math.Abs(v[0]) + 1e-6 }, want), 0x1.02p-9)
			}
			for threads := 1; threads <= 2; threads++ {
				ex := NewParallelExec(threads)
				defer ex.Close()
				dst := New(types[0], n)
				LinearSum(ex, dst, a, x, b, y, LinearSums{})
				near(t, "sum", dst.Mat(), want, bound)
				for _, operand := range []Tensor{x, y} {
					if operand.DType() != types[0] {
						continue
					}
					left, right := New(types[1], n), New(types[2], n)
					Convert(ex, left.Mat(), x.Mat())
					Convert(ex, right.Mat(), y.Mat())
					to := left
					if operand.data == y.data {
						to = right
					}
					LinearSum(ex, to, a, left, b, right, LinearSums{})
					same(t, "in place", to.Mat(), values(dst.Mat()))
				}
			}
		}
	}
}
