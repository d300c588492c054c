package gemm

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/internal/vec"
)

// Portable products have one chain of fused multiply-adds on every tier, also of numbers that are
// subnormal: in BF16 the second of each pair first.
func TestPortable(t *testing.T) {
	const m, n, k = 37, 45, 71
	rng := rand.New(rand.NewPCG(7, 8))
	value := func() float32 { return float32(math.Ldexp(rng.NormFloat64(), rng.IntN(20)-10)) }
	small := func() uint16 { return vec.ToBF16(float32(math.Ldexp(rng.NormFloat64(), -rng.IntN(80)))) }
	a32, b32 := newMatrix[float32](m, k, false, 1).fill(value), newMatrix[float32](k, n, true, 1).fill(value)
	a16, b16 := newMatrix[uint16](m, k, false, 1).fill(small), newMatrix[uint16](k, n, false, 1).fill(small)
	want := func(i, j int) (full, half float32) {
		for l := range k {
			full = fusedAdd(*at[float32](a32.View, i, l), *at[float32](b32.View, l, j), full)
			l = swapped(l, k)
			half = fusedAdd(vec.FromBF16(*at[uint16](a16.View, i, l)), vec.FromBF16(*at[uint16](b16.View, l, j)), half)
		}
		return full, half
	}
	for _, tier := range cpu.Tiers() {
		ks, s := table.Kernels(portableTier(tier)), &Scratch{Portable: true}
		full, half := newMatrix[float32](m, n, false, 0), newMatrix[float32](m, n, false, 0)
		rounded := newMatrix[uint16](m, n, false, 0)
		ks.fp32(s, full.View, a32.View, b32.View, mode{})
		ks.bf16(s, half.View, a16.View, b16.View, mode{})
		ks.bf16Rounded(s, rounded.View, a16.View, b16.View, mode{})
		for i := range m {
			for j := range n {
				x, y := want(i, j)
				if got := *at[float32](full.View, i, j); got != x {
					t.Fatalf("%v: FP32 element %d, %d: %v, want %v", tier, i, j, got, x)
				}
				if got := *at[float32](half.View, i, j); got != y {
					t.Fatalf("%v: BF16 element %d, %d: %v, want %v", tier, i, j, got, y)
				}
				if got := *at[uint16](rounded.View, i, j); got != vec.ToBF16(y) {
					t.Fatalf("%v: rounded element %d, %d: %#x, want %v", tier, i, j, got, y)
				}
			}
		}
	}
}

// fusedAdd rounds the exact result once, also to subnormal numbers.
func TestFusedAdd(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200000 {
		x, y := math.Float32frombits(rng.Uint32()&0x0fffffff|0x34000000), math.Float32frombits(rng.Uint32()&0x8fffffff|0x34000000)
		c := float32(-float64(x)*float64(y)) * (1 + float32(rng.IntN(5)-2)/(1<<20))
		if rng.IntN(2) == 0 {
			c = math.Float32frombits(rng.Uint32() & 0x87ffffff) // tiny
		}
		exact := new(big.Float).SetPrec(400).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		exact.Add(exact, new(big.Float).SetPrec(400).SetFloat64(float64(c)))
		if want, _ := exact.Float32(); fusedAdd(x, y, c) != want {
			t.Fatalf("%v·%v + %v = %v, want %v", x, y, c, fusedAdd(x, y, c), want)
		}
	}
	if got := fusedAdd(math.MaxFloat32, math.MaxFloat32, 1); !math.IsInf(float64(got), 1) {
		t.Errorf("the largest square is %v", got)
	}
	if got := fusedAdd(float32(math.Inf(1)), 1, float32(math.Inf(-1))); got == got {
		t.Errorf("the difference of infinities is %v", got)
	}
}
