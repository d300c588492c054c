package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
	"spmoe/tensor/internal/vec"
)

// reference computes in float64 what c becomes, and a bound for the error of a sum in FP32: eps/2
// of the running sum per step.
func reference(c []float32, a, b func(i, j int) float64, m, n, k int) (want, bound []float64) {
	const eps = 1.0 / (1 << 23)
	for i := range m {
		for j := range n {
			sum, size := float64(c[i*n+j]), math.Abs(float64(c[i*n+j]))
			for l := range k {
				p := a(i, l) * b(l, j)
				sum += p
				size += math.Abs(p)
			}
			want = append(want, sum)
			bound = append(bound, size*eps*float64(k+1))
		}
	}
	return want, bound
}

// All tiers give the bits of the documented order of summation, for any blocking.
func TestBF16Bits(t *testing.T) {
	var s Scratch
	eachShape(t, func(t *testing.T, r *rand.Rand, m, n, k int, aT, bT bool) {
		a, b := operands[uint16](r, m, n, k, aT, bT)
		start := results(r, m, n)
		eachTier(t, func(t *testing.T, ks *kernels) {
			sums := newMatrix[float32](m, n, false, guard)
			for i := range m {
				for j := range n {
					*at[float32](sums.View, i, j) = ks.order(a.View, b.View, i, j, 0)
				}
			}
			for _, how := range []mode{{}, {add: true}, {alpha: 0.3}, {alpha: 0.3, add: true}} {
				s.poison()
				got, want := start.clone(), start.clone()
				for i := range m {
					for j := range n {
						c, sum := at[float32](want.View, i, j), *at[float32](sums.View, i, j)
						switch {
						case how.alpha != 0:
							*c = initial(*c, how.add) + float32(how.alpha*sum)
						case how.add:
							*c = ks.order(a.View, b.View, i, j, *c)
						default:
							*c = sum
						}
					}
				}
				ks.bf16(&s, got.View, a.View, b.View, how)
				checkSame(t, got.elements(t), want.elements(t))
			}
			for _, alpha := range []float32{0, 0.3} {
				got, want := newMatrix[uint16](m, n, false, 7), newMatrix[uint16](m, n, false, 7)
				for i := range m {
					for j := range n {
						sum := *at[float32](sums.View, i, j)
						if alpha != 0 {
							sum *= alpha
						}
						*at[uint16](want.View, i, j) = vec.ToBF16(sum)
					}
				}
				ks.bf16Rounded(&s, got.View, a.View, b.View, mode{alpha: alpha})
				checkSame(t, got.elements(t), want.elements(t))
			}
		})
	})
}

func checkSame[T uint16 | float32](t *testing.T, got, want []T) {
	t.Helper()
	for i := range got {
		if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// One block of b does not hold all columns.
func TestSeveralBlocks(t *testing.T) {
	const m, n, k = 5, 1100, 2048
	r := rand.New(rand.NewPCG(1, 2))
	a, b := operands[uint16](r, m, n, k, false, false)
	eachTier(t, func(t *testing.T, ks *kernels) {
		want, got := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
		for i := range m {
			for j := range n {
				*at[float32](want.View, i, j) = ks.order(a.View, b.View, i, j, 0)
			}
		}
		var s Scratch
		ks.bf16(&s, got.View, a.View, b.View, mode{})
		checkSame(t, got.elements(t), want.elements(t))
	})
}

// Only VDPBF16PS and tiles flush subnormals, as the package comment says.
func TestSubnormals(t *testing.T) {
	const tiny, one = 0x0013, 0x3f80
	flush := []cpu.Tier{cpu.AVX512BF16, cpu.AMX, cpu.NEONBF16}
	for _, tier := range table.Tiers() {
		t.Run(tier.String(), func(t *testing.T) {
			cputest.Need(t, tier)
			want := uint16(tiny)
			if slices.Contains(flush, tier) {
				want = 0
			}
			a, b, c := []uint16{tiny, 0}, make([]uint16, 2*20), make([]uint16, 20)
			for j := range c {
				b[j] = one
			}
			var s Scratch
			table[tier].bf16Rounded(&s, strided(unsafe.Pointer(&c[0]), 1, 20, 20, 1), strided(unsafe.Pointer(&a[0]), 1, 2, 2, 1),
				strided(unsafe.Pointer(&b[0]), 2, 20, 20, 1), mode{})
			for j := range c {
				if c[j] != want {
					t.Errorf("element %d is %#x, want %#x", j, c[j], want)
				}
			}
		})
	}
}

func TestNaNAndInf(t *testing.T) {
	const inf = 0x7f80
	one := uint16(0x3f80)
	tests := []struct {
		a, b [3]uint16
		want float32
	}{
		{[3]uint16{inf, one, one}, [3]uint16{one, one, one}, float32(math.Inf(1))},
		{[3]uint16{one, inf | 0x8000, one}, [3]uint16{one, one, one}, float32(math.Inf(-1))},
		{[3]uint16{one, one, inf}, [3]uint16{one, one, 0}, float32(math.NaN())},
		{[3]uint16{inf, one, one}, [3]uint16{one, one, inf | 0x8000}, float32(math.NaN())},
		{[3]uint16{0, one, one}, [3]uint16{nan16, one, one}, float32(math.NaN())},
		{[3]uint16{one, one, one}, [3]uint16{one, one, one}, 3},
	}
	eachTier(t, func(t *testing.T, ks *kernels) {
		var s Scratch
		for _, tt := range tests {
			var c float32
			a, b := strided(unsafe.Pointer(&tt.a), 1, 3, 3, 1), strided(unsafe.Pointer(&tt.b), 3, 1, 1, 1)
			ks.bf16(&s, strided(unsafe.Pointer(&c), 1, 1, 1, 1), a, b, mode{})
			checkSame(t, []float32{c}, []float32{tt.want})

			var rounded uint16
			ks.bf16Rounded(&s, strided(unsafe.Pointer(&rounded), 1, 1, 1, 1), a, b, mode{})
			checkSame(t, []float32{vec.FromBF16(rounded)}, []float32{tt.want})

			var wideA, wideB [3]float32
			for i := range 3 {
				wideA[i], wideB[i] = vec.FromBF16(tt.a[i]), vec.FromBF16(tt.b[i])
			}
			a.Ptr, b.Ptr = unsafe.Pointer(&wideA), unsafe.Pointer(&wideB)
			ks.fp32(&s, strided(unsafe.Pointer(&c), 1, 1, 1, 1), a, b, mode{})
			checkSame(t, []float32{c}, []float32{tt.want})
		}
	})
}
