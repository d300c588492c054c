package gemm

// The orders of summation of products of panels, in plain Go. Across and transposed products have
// them, too.

import (
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/internal/vec"
)

// chain adds row i of a times column j of b, in BF16, to sum as panels do: of each pair (k, k+1)
// the second first. The product of two BF16 numbers is exact in FP32, so a multiplication and an
// addition round as a fused multiply-add does.
func chain(a, b View, i, j int, sum float32) float32 {
	term := func(k int) float32 { return vec.FromBF16(*at[uint16](a, i, k)) * vec.FromBF16(*at[uint16](b, k, j)) }
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

// tileChains is chain in the order of AMX. Of every 32 elements of k, one chain takes the even ones
// and another the odd ones, each from zero. Their sum is added.
func tileChains(a, b View, i, j int, sum float32) float32 {
	for k := 0; k < a.Cols; k += 32 {
		var chains [2]float32
		for l := k; l < min(k+32, a.Cols); l++ {
			chains[l%2] += vec.FromBF16(*at[uint16](a, i, l)) * vec.FromBF16(*at[uint16](b, l, j))
		}
		sum += chains[0] + chains[1]
	}
	return sum
}

// chainFP32 is chain for FP32 operands, in the order of k. The products must be exact in FP32.
func chainFP32(a, b View, i, j int, sum float32) float32 {
	for k := range a.Cols {
		sum += *at[float32](a, i, k) * *at[float32](b, k, j)
	}
	return sum
}

// order returns element (i, j) of a BF16 product of these operands plus c, in the tier's order of
// summation.
func (ks *kernels) order(a, b View, i, j int, c float32) float32 {
	if ks.quads {
		return oddPairs(a, b, i, j, c)
	}
	return panelOrder(ks.tiles)(a, b, i, j, c)
}

// oddPairs is chain in the order of BFMMLA. The products of each pair (k, k+1) are added, and their
// sum is added to the chain. Both additions round to odd.
func oddPairs(a, b View, i, j int, sum float32) float32 {
	term := func(k int) float64 {
		if k >= a.Cols {
			return 0
		}
		return float64(vec.FromBF16(*at[uint16](a, i, k))) * float64(vec.FromBF16(*at[uint16](b, k, j)))
	}
	for k := 0; k < a.Cols; k += 2 {
		sum = addToOdd(float64(sum), float64(addToOdd(term(k), term(k+1))))
	}
	return sum
}

// addToOdd rounds x + y to odd: if it is not exact, to the neighbor whose last bit is 1.
func addToOdd(x, y float64) float32 {
	sum := x + y
	part := sum - x
	rest := (x - (sum - part)) + (y - part) // the rounding error of sum
	bits := math.Float64bits(sum)
	if rest != 0 {
		if math.Signbit(rest) != math.Signbit(sum) {
			bits-- // toward zero
		}
		bits |= 1
		sum = math.Float64frombits(bits)
	}
	rounded := float32(sum)
	if float64(rounded) == sum {
		return rounded
	}
	if math.Abs(float64(rounded)) > math.Abs(sum) {
		rounded = math.Float32frombits(math.Float32bits(rounded) - 1)
	}
	return math.Float32frombits(math.Float32bits(rounded) | 1)
}

// panelOrder returns the order of panels, for tiles or not.
func panelOrder(tiles bool) func(a, b View, i, j int, c float32) float32 {
	if tiles {
		return tileChains
	}
	return chain
}

// All tiers sum FP32 products in the order of k, for any blocking.
func TestFP32Bits(t *testing.T) {
	var s Scratch
	eachShape(t, func(t *testing.T, r *rand.Rand, m, n, k int, aT, bT bool) {
		a, b := operands[float32](r, m, n, k, aT, bT)
		exact := func() float32 { return vec.FromBF16(vec.ToBF16(float32(r.NormFloat64()))) }
		a.fill(exact)
		b.fill(exact)
		start := results(r, m, n)
		eachTier(t, func(t *testing.T, ks *kernels) {
			for _, accumulate := range []bool{false, true} {
				s.poison()
				got, want := start.clone(), start.clone()
				for i := range m {
					for j := range n {
						c := at[float32](want.View, i, j)
						*c = chainFP32(a.View, b.View, i, j, initial(*c, accumulate))
					}
				}
				ks.fp32(&s, got.View, a.View, b.View, mode{add: accumulate})
				checkSame(t, got.elements(t), want.elements(t))
			}
		})
	})
}
