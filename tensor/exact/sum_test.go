package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// anyFloat draws numbers of all exponents and signs.
func anyFloat(r *rand.Rand) float64 {
	for {
		if x := math.Float64frombits(r.Uint64()); !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
}

func sumOf(terms []float64) float64 {
	var s Sum
	for _, x := range terms {
		s.Add(x)
	}
	return s.Value()
}

// Sums are those of big.Float with enough bits for every term.
func TestSumsAreRoundedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var terms []float64
		want := new(big.Float).SetPrec(2300)
		for range r.IntN(40) {
			x := anyFloat(r) / 64 // so that no sum is too large
			terms = append(terms, x)
			want.Add(want, new(big.Float).SetFloat64(x))
		}
		if exact, _ := want.Float64(); sumOf(terms) != exact {
			t.Fatalf("the sum of %v is %g, want %g", terms, sumOf(terms), exact)
		}
	}
	if got := sumOf([]float64{math.MaxFloat64, math.MaxFloat64}); !math.IsInf(got, 1) {
		t.Errorf("twice the largest number is %g", got)
	}
	if got := sumOf([]float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64}); got != math.MaxFloat64 {
		t.Errorf("what overflows on the way is %g", got)
	}
	if got := sumOf([]float64{1, 0x1p-53, 0x1p-200}); got != 1+0x1p-52 {
		t.Errorf("a bit behind the half is lost: %g", got)
	}
}

// Parts add up element by element, in any order.
func TestPartsAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	terms := make([]float64, 1000)
	for i := range terms {
		terms[i] = r.NormFloat64() * math.Exp2(float64(r.IntN(200)-100))
	}
	want := sumOf(terms)
	for parts := 1; parts <= 8; parts++ {
		r.Shuffle(len(terms), func(i, j int) { terms[i], terms[j] = terms[j], terms[i] })
		var total Sum
		for part := range slices.Chunk(terms, (len(terms)+parts-1)/parts) {
			var s Sum
			for _, x := range part {
				s.Add(x)
			}
			for i, x := range s {
				total[i] += x
			}
		}
		if got := total.Value(); got != want {
			t.Errorf("%d parts add up to %g, want %g", parts, got, want)
		}
	}
}

func TestSpecialTerms(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		terms []float64
		want  float64
	}{{[]float64{1, nan}, nan}, {[]float64{inf, 1}, inf}, {[]float64{-inf, 1}, -inf}, {[]float64{inf, -inf}, nan}, {[]float64{inf, nan}, nan}} {
		if got := sumOf(c.terms); got != c.want && (got == got || c.want == c.want) {
			t.Errorf("the sum of %v is %g, want %g", c.terms, got, c.want)
		}
	}
}
