package gemm

// The generic tier: three plain loops in plain Go, the reference for the others.

var genericKernels = kernels{
	bf16: func(_ *Scratch, c, a, b View, accumulate bool) {
		for i := range c.Rows {
			for j := range c.Cols {
				out := at[float32](c, i, j)
				*out = dotBF16(a, b, i, j, initial(*out, accumulate))
			}
		}
	},
	bf16Rounded: func(_ *Scratch, c, a, b View) {
		for i := range c.Rows {
			for j := range c.Cols {
				*at[uint16](c, i, j) = roundBF16(dotBF16(a, b, i, j, 0))
			}
		}
	},
	fp32: func(_ *Scratch, c, a, b View, accumulate bool) {
		for i := range c.Rows {
			for j := range c.Cols {
				out := at[float32](c, i, j)
				sum := initial(*out, accumulate)
				for k := range a.Cols {
					sum += *at[float32](a, i, k) * *at[float32](b, k, j)
				}
				*out = sum
			}
		}
	},
	peakBF16: peakScalar,
	peakFP32: peakScalar,
}

// dotBF16 adds row i of a times column j of b to sum. The product of two BF16 numbers is exact in FP32, so that a
// multiplication and an addition round as a fused multiply-add does.
func dotBF16(a, b View, i, j int, sum float32) float32 {
	term := func(k int) float32 { return wideBF16(*at[uint16](a, i, k)) * wideBF16(*at[uint16](b, k, j)) }
	k := 0
	for ; k+1 < a.Cols; k += 2 {
		sum += term(k + 1)
		sum += term(k)
	}
	if k < a.Cols {
		sum += term(k)
	}
	return sum
}

func initial(c float32, accumulate bool) float32 {
	if accumulate {
		return c
	}
	return 0
}

// peakScalar keeps eight chains of multiply-add going in registers.
func peakScalar(rounds int) float64 {
	const m, p = 0.999, 0.001
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for range rounds {
		s0, s1, s2, s3 = s0*m+p, s1*m+p, s2*m+p, s3*m+p
		s4, s5, s6, s7 = s4*m+p, s5*m+p, s6*m+p, s7*m+p
	}
	if s0+s1+s2+s3+s4+s5+s6+s7 < 0 {
		panic("gemm: sums of positive numbers are negative")
	}
	return 16 * float64(rounds)
}
