package gemm

// Products with the same bits on every tier: for sums that no CPU has, such as those of a GPU, all
// other products of a run must not depend on the CPU either. They have the order of chains, with
// fused multiply-adds and subnormal numbers.

import (
	"math"

	"spmoe/tensor/cpu"
)

// portable holds the products of the best tier with that order.
var portable = table.Kernels(portableTier(cpu.Best()))

// portableTier returns the tier whose products a tier uses. Instructions for BF16 drop subnormal
// numbers, and some add in other orders.
func portableTier(t cpu.Tier) cpu.Tier {
	switch t {
	case cpu.AVX512BF16, cpu.AMX, cpu.NEONBF16:
		return t.Base()
	}
	return t
}

// kernels returns the kernels of products with this scratch memory.
func (s *Scratch) kernels() *kernels {
	if s.Portable {
		return portable
	}
	return active
}

// fusedSums is portableSums with one rounding per step.
func fusedSums(c *[portableTile]quad, a, b []quad) {
	for k := range a {
		for i := range c {
			for j := range c[i] {
				c[i][j] = fusedAdd(a[k][i], b[k][j], c[i][j])
			}
		}
	}
}

// fusedAdd returns x·y + c, rounded once. The product is exact in float64. The sum is rounded to
// odd there, so that rounding it to float32 gives the nearest number.
func fusedAdd(x, y, c float32) float32 {
	product, addend := float64(x)*float64(y), float64(c)
	sum := product + addend
	part := sum - product
	rest := (product - (sum - part)) + (addend - part) // what the sum has lost
	if bits := math.Float64bits(sum); bits&1 == 0 && (rest > 0 || rest < 0) {
		if (rest > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}
