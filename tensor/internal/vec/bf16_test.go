package vec

// The bfloat16 kernels. In every tier they must give the bits of widening, the plain Go kernel on
// float32 and rounding.

import (
	"math"
	"math/rand/v2"
	"testing"
)

// line is a slice of either type.
type line struct {
	wide []float32
	half []uint16
}

// operation16 is the BF16 variant of the operation with the given name. types has a letter for each
// slice, outputs before inputs: h for bfloat16, f for float32.
type operation16 struct {
	name, types string
	run         func(out, in []line) float64
}

var operations16 = []operation16{
	{"Add", "hhh", func(out, in []line) float64 {
		AddBF16(out[0].half, in[0].half, in[1].half)
		return 0
	}},
	{"AddScaled", "fh", func(out, in []line) float64 {
		AddScaledBF16(out[0].wide, a, in[0].half)
		return 0
	}},
	{"Scale", "hf", func(out, in []line) float64 {
		ScaleBF16(out[0].half, a, in[0].wide)
		return 0
	}},
	{"SumBlocks", "hh", func(out, in []line) float64 {
		n := len(out[0].half) / blocks
		SumBlocksBF16(out[0].half[:n], in[0].half, blocks, n)
		return 0
	}},
	{"MulScaled", "hhf", func(out, in []line) float64 {
		MulScaledBF16(out[0].half, a, in[0].half, inOrder(in[1].wide))
		return 0
	}},
	{"NormWeightGrad", "fhhf", func(out, in []line) float64 {
		return float64(NormWeightGradBF16(out[0].wide, a, in[0].half, in[1].half, in[2].wide))
	}},
	{"NormInputGrad", "hhfh", func(out, in []line) float64 {
		NormInputGradBF16(out[0].half, false, a, in[0].half, inOrder(in[1].wide), shift, in[2].half)
		return 0
	}},
	{"NormInputGradAdded", "hhfh", func(out, in []line) float64 {
		NormInputGradBF16(out[0].half, true, a, in[0].half, inOrder(in[1].wide), shift, in[2].half)
		return 0
	}},
	{"Rotate", "hff", func(out, in []line) float64 {
		rows, stride, pairs := turns(len(out[0].half))
		RotateBF16(out[0].half, stride, in[0].wide[:rows*pairs], in[1].wide[:rows*pairs], pairs, -1)
		return 0
	}},
	{"SwiGLU", "hhh", func(out, in []line) float64 {
		SwiGLUBF16(out[0].half, in[0].half, in[1].half)
		return 0
	}},
	{"SwiGLUBackward", "hhhhh", func(out, in []line) float64 {
		SwiGLUBackwardBF16(out[0].half, out[1].half, in[0].half, in[1].half, in[2].half)
		return 0
	}},
	{"ExpSum", "hf", func(out, in []line) float64 {
		return float64(ExpSumBF16(out[0].half, a, in[0].wide, shift))
	}},
	{"SoftmaxBackward", "hhff", func(out, in []line) float64 {
		SoftmaxBackwardBF16(out[0].half, out[1].half, a, in[0].wide, in[1].wide, shift, 2*shift)
		return 0
	}},
	{"AdamW", "fhhf", func(out, in []line) float64 {
		AdamWBF16(state16Of(out), state16Of(out), in[0].wide, thirdStep, &anySums)
		return 0
	}},
	{"AdamWElsewhere", "fhhffhh", func(out, in []line) float64 {
		AdamWBF16(state16Of(out), state16Of(in[1:]), in[0].wide, thirdStep, &anySums)
		return 0
	}},
	{"AdamWStreaming", "fhhffhh", func(out, in []line) float64 {
		AdamWStreamingBF16(state16Of(out), state16Of(in[1:]), in[0].wide, thirdStep, &anySums)
		return 0
	}},
	{"Dot", "hh", func(_, in []line) float64 { return float64(DotBF16(in[0].half, in[1].half)) }},
}

func state16Of(lines []line) AdamWStateBF16 {
	return AdamWStateBF16{lines[0].wide, lines[1].half, lines[2].half}
}

// ordered has room for the rows of tests and benchmarks.
var ordered [max(2*chunk+100, 1<<20)]float32

// inOrder returns the weights in the order of Split.
func inOrder(w []float32) []float32 {
	Split(ordered[:], w)
	return ordered[:SplitLen(len(w))]
}

// float32Form returns the operation whose results op must give.
func (op operation16) float32Form(t testing.TB) operation {
	for _, wide := range operations {
		if wide.name == op.name {
			return wide
		}
	}
	t.Fatalf("no operation %s on float32", op.name)
	return operation{}
}

func TestBF16Kernels(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(15, 16))
		for i, op := range operations16 {
			wide := op.float32Form(t)
			for _, n := range lengths {
				compare16(t, op, wide, n, []float64{0, 0.2}[(n+i)%2], rng, -1)
				for alias := range wide.out * wide.in {
					sameType := op.types[alias/wide.in] == op.types[wide.out+alias%wide.in]
					if n < chunk && inPlace(op.name) && sameType {
						compare16(t, op, wide, n, 0, rng, alias)
					}
				}
			}
		}
	})
}

// compare16 runs op with the active kernels, and its float32 form with the generic ones.
func compare16(t *testing.T, op operation16, wide operation, n int, share float64, rng *rand.Rand, alias int) {
	t.Helper()
	var got []line
	var want [][]float32
	var checks []func()
	for i, typ := range op.types {
		x, check := guarded(t, op.name, n, rng.IntN(17))
		fill(rng, x, share)
		l := line{wide: x}
		if typ == 'h' {
			l.half, check = guarded16(t, op.name, n, rng.IntN(17))
			roundGeneric(l.half, x)
			widenGeneric(x, l.half)
		}
		if alias >= 0 && i == wide.out+alias%wide.in {
			l = got[alias/wide.in]
			want = append(want, want[alias/wide.in])
		} else {
			want = append(want, append([]float32{}, l.wide...))
		}
		got, checks = append(got, l), append(checks, check)
	}
	r := op.run(got[:wide.out], got[wide.out:])
	before := active
	active = generic
	w := wide.run(want[:wide.out], want[wide.out:])
	active = before
	if !same(r, w) {
		t.Fatalf("%s, length %d: %v, want %v", op.name, n, r, w)
	}
	for i, typ := range op.types {
		if typ == 'h' {
			roundTrip(want[i])
			widenGeneric(got[i].wide, got[i].half)
		}
		for j, g := range got[i].wide {
			if !same(g, want[i][j]) {
				t.Fatalf("%s, length %d, slice %d: element %d is %v, want %v", op.name, n, i, j, g, want[i][j])
			}
		}
	}
	for _, check := range checks {
		check()
	}
}

func roundTrip(x []float32) {
	half := make([]uint16, len(x))
	roundGeneric(half, x)
	widenGeneric(x, half)
}

// TestSplit checks the order of weights, the zeros after them and their NaNs.
func TestSplit(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		for _, n := range lengths {
			w := make([]float32, n)
			for i := range w {
				w[i] = float32(i + 1)
			}
			if n > 40 {
				w[n/2] = math.Float32frombits(0x7fffffff)
			}
			dst, check := guarded(t, "Split", SplitLen(n), n%17)
			Split(dst, w)
			check()
			for at, got := range dst {
				i := at/32*32 + at%16*2 + at/16%2
				switch {
				case i >= n && got != 0:
					t.Fatalf("length %d: element %d after the end is %v", n, at, got)
				case i < n && w[i] != w[i] && math.Float32bits(got)<<16 != 0, i < n && !same(got, w[i]):
					t.Fatalf("length %d: element %d is %v, want %v", n, at, got, w[i])
				}
			}
		}
	})
}

func TestSquaresBF16(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(17, 18))
		for _, n := range lengths {
			for _, share := range []float64{0, 0.1} {
				x, half := make([]float32, n), make([]uint16, n)
				fill(rng, x, share)
				roundGeneric(half, x)
				widenGeneric(x, half)
				got := SquaresBF16(half)
				if want, exact := squaresInOrder(half), sumSquaresGeneric(x); !same(got, want) {
					t.Fatalf("length %d: %v, want %v", n, got, want)
				} else if math.Abs(float64(got)-exact) > 1e-5*exact {
					t.Fatalf("length %d: %v, want about %v", n, got, exact)
				}
			}
		}
	})
}

// squaresInOrder returns the expected result of SquaresBF16, one chunk at a time.
func squaresInOrder(x []uint16) float32 {
	var sum float32
	for len(x) > chunk {
		sum += squares16Generic(x[:chunk])
		x = x[chunk:]
	}
	return sum + squares16Generic(x)
}

// guarded16 is guarded for bfloat16.
func guarded16(t *testing.T, name string, n, offset int) (x []uint16, check func()) {
	const margin, canary = 64, 0x4321
	whole := make([]uint16, n+2*margin+offset)
	for i := range whole {
		whole[i] = canary
	}
	lo := margin + offset
	return whole[lo : lo+n : lo+n], func() {
		t.Helper()
		for i, v := range whole {
			if (i < lo || i >= lo+n) && v != canary {
				t.Fatalf("%s, length %d: element %d was written", name, n, i-lo)
			}
		}
	}
}
