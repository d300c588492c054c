package tensor

import "testing"

// A symmetric product is that of MatMul, whatever the size, the type and the number of threads.
func TestMatMulSymmetric(t *testing.T) {
	for _, dtype := range floats {
		for _, n := range []int{1, 31, 70, symmetricBand + 33, 2*symmetricBand + 1} {
			x := random(uint64(n), dtype, n, 40).Mat()
			want := New(FP32, n, n)
			MatMul(NewExec(), want.Mat(), x, x.T())
			for threads := 1; threads <= 2; threads++ {
				ex := NewParallelExec(threads)
				for _, to := range []DType{FP32, dtype} {
					got := New(to, n, n).Mat()
					MatMulSymmetric(ex, got, x, x.T())
					bound := 1e-4
					if to == BF16 {
						bound = 0.3
					}
					near(t, "product", got, values(want.Mat()), absolute(bound))
					same(t, "transposed", got, values(got.T()))
				}
				ex.Close()
			}
		}
	}
}
