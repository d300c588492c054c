package vec

// Comparison of every tier of this CPU with the plain Go functions, bit for bit, and with float64.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/cpu/cputest"
)

// eachTier runs f with the kernels of each tier.
func eachTier(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	cputest.Each(t, table, func(t *testing.T, ks kernels) {
		before := active
		defer func() { active = before }()
		active = ks
		f(t)
	})
}

// An operation is an exported function in a form that a table can hold: the slices it writes (and
// may read), the slices it only reads, and its result, if any. element computes the same for one
// element in float64.
type operation struct {
	name    string
	out, in int
	run     func(out, in [][]float32) float64
	element func(out, in []float64)
}

// mostRows is the largest number of slices of an operation.
const mostRows = 7

const a, shift, blocks = 0.7, 0.3, 3

// turns divides n elements into rows of Rotate. The rows have gaps between them, or have none and
// exceed one kernel call.
func turns(n int) (rows, stride, pairs int) {
	pairs = min(n/2, 21)
	if pairs == 0 {
		return 0, 0, 0
	}
	stride = 2 * pairs
	if n < chunk {
		stride++
	}
	return n / stride, stride, pairs
}

// inPlace says whether the results of an operation may overwrite any input.
func inPlace(name string) bool { return name != "SumBlocks" && name != "Rotate" }

func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }

func stateOf(rows [][]float32) AdamWState { return AdamWState{rows[0], rows[1], rows[2]} }

var thirdStep = NewAdamWStep(1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3)

// thirdStepFloat64 is AdamW with thirdStep on one element: weight and moments.
func thirdStepFloat64(dst, src []float64, grad float64) {
	g, beta1, beta2 := grad*0.5, 0.9, 0.95
	w := src[0] * (1 - 1e-2*0.1)
	m := beta1*src[1] + (1-beta1)*g
	v := beta2*src[2] + (1-beta2)*g*g
	mHat, vHat := m/(1-math.Pow(beta1, 3)), v/(1-math.Pow(beta2, 3))
	dst[0], dst[1], dst[2] = w-1e-2*mHat/(math.Sqrt(vHat)+1e-8), m, v
}

var operations = []operation{
	{"Add", 1, 2, func(out, in [][]float32) float64 {
		Add(out[0], in[0], in[1])
		return 0
	}, func(out, in []float64) { out[0] = in[0] + in[1] }},
	{"Divide", 1, 2, func(out, in [][]float32) float64 {
		Divide(out[0], in[0], in[1])
		return 0
	}, func(out, in []float64) { out[0] = in[0] / in[1] }},
	{"AddScaled", 1, 1, func(out, in [][]float32) float64 {
		AddScaled(out[0], a, in[0])
		return 0
	}, func(out, in []float64) { out[0] += a * in[0] }},
	{"Scale", 1, 1, func(out, in [][]float32) float64 {
		Scale(out[0], a, in[0])
		return 0
	}, func(out, in []float64) { out[0] = a * in[0] }},
	{"MulScaled", 1, 2, func(out, in [][]float32) float64 {
		MulScaled(out[0], a, in[0], in[1])
		return 0
	}, func(out, in []float64) { out[0] = a * in[0] * in[1] }},
	{"SumBlocks", 1, 1, func(out, in [][]float32) float64 {
		n := len(out[0]) / blocks
		SumBlocks(out[0][:n], in[0], blocks, n)
		return 0
	}, nil},
	{"NormWeightGrad", 1, 3, func(out, in [][]float32) float64 {
		return float64(NormWeightGrad(out[0], a, in[0], in[1], in[2]))
	}, func(out, in []float64) { out[0] += a * in[0] * in[1] }},
	{"NormInputGrad", 1, 3, func(out, in [][]float32) float64 {
		NormInputGrad(out[0], false, a, in[0], in[1], shift, in[2])
		return 0
	}, func(out, in []float64) { out[0] = a*in[0]*in[1] + shift*in[2] }},
	{"NormInputGradAdded", 1, 3, func(out, in [][]float32) float64 {
		NormInputGrad(out[0], true, a, in[0], in[1], shift, in[2])
		return 0
	}, func(out, in []float64) { out[0] += a*in[0]*in[1] + shift*in[2] }},
	{"Rotate", 1, 2, func(out, in [][]float32) float64 {
		rows, stride, pairs := turns(len(in[0]))
		Rotate(out[0], stride, in[0][:rows*pairs], in[1][:rows*pairs], pairs, -1)
		return 0
	}, nil},
	{"Sigmoid", 1, 1, func(out, in [][]float32) float64 {
		Sigmoid(out[0], in[0])
		return 0
	}, func(out, in []float64) { out[0] = sigmoid(in[0]) }},
	{"SwiGLU", 1, 2, func(out, in [][]float32) float64 {
		SwiGLU(out[0], in[0], in[1])
		return 0
	}, func(out, in []float64) { out[0] = in[0] * sigmoid(in[0]) * in[1] }},
	{"SwiGLUBackward", 2, 3, func(out, in [][]float32) float64 {
		SwiGLUBackward(out[0], out[1], in[0], in[1], in[2])
		return 0
	}, func(out, in []float64) {
		s := sigmoid(in[1])
		out[0], out[1] = in[0]*in[2]*s*(1+in[1]*(1-s)), in[0]*in[1]*s
	}},
	{"SoftmaxBackward", 2, 2, func(out, in [][]float32) float64 {
		SoftmaxBackward(out[0], out[1], a, in[0], in[1], shift, 2*shift)
		return 0
	}, func(out, in []float64) {
		out[0] = math.Exp(a*in[0] - shift)
		out[1] = a * out[0] * (in[1] - 2*shift)
	}},
	{"ExpSum", 1, 1, func(out, in [][]float32) float64 {
		return float64(ExpSum(out[0], a, in[0], shift))
	}, func(out, in []float64) { out[0] = math.Exp(a*in[0] - shift) }},
	{"AdamW", 3, 1, func(out, in [][]float32) float64 {
		AdamW(stateOf(out), stateOf(out), in[0], thirdStep, &anySums)
		return 0
	}, func(out, in []float64) { thirdStepFloat64(out, out, in[0]) }},
	{"AdamWElsewhere", 3, 4, func(out, in [][]float32) float64 {
		AdamW(stateOf(out), stateOf(in[1:]), in[0], thirdStep, &anySums)
		return 0
	}, nil},
	{"AdamWStreaming", 3, 4, func(out, in [][]float32) float64 {
		AdamWStreaming(stateOf(out), stateOf(in[1:]), in[0], thirdStep, &anySums)
		return 0
	}, nil},
	{"Dot", 0, 2, func(_, in [][]float32) float64 { return float64(Dot(in[0], in[1])) }, nil},
	{"SumSquares", 0, 1, func(_, in [][]float32) float64 { return SumSquares(in[0]) }, nil},
	{"Max", 0, 1, func(_, in [][]float32) float64 { return float64(Max(in[0])) }, nil},
}

var lengths = func() []int {
	ns := []int{255, 256, 257, 1000, chunk - 1, chunk, chunk + 1, 2*chunk + 77}
	for n := range 140 {
		ns = append(ns, n)
	}
	return ns
}()

// odd are values that a kernel might get wrong.
var odd = []uint32{
	// Zeros, subnormals, the largest numbers.
	0, 1 << 31, 1, 1<<31 | 1, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
	// Infinities and NaNs.
	0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc12345,
	// The limits of the normal range of exp.
	0x42b17217, 0x42b17218, 0xc2aeac4f, 0xc2aeac50, 0x42c80000, 0xc2c80000,
}

// normals are drawn once: drawn in each test they would take a third of the time. 40,009 is prime.
var normals = func() []float32 {
	rng, x := rand.New(rand.NewPCG(13, 14)), make([]float32, 40009)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * 3)
	}
	return x
}()

// fill sets x to normal numbers and, for the given share, odd values.
func fill(rng *rand.Rand, x []float32, share float64) {
	at := rng.IntN(len(normals))
	for done := 0; done < len(x); at = 0 {
		done += copy(x[done:], normals[at:])
	}
	for i := range x {
		if share > 0 && rng.Float64() < share {
			x[i] = math.Float32frombits(odd[rng.IntN(len(odd))])
		}
	}
}

// same says whether x and y have the same bits or are both NaN.
func same[T float32 | float64](x, y T) bool {
	return math.Float64bits(float64(x)) == math.Float64bits(float64(y)) || x != x && y != y
}

const canary = 12345.678

// guarded returns n elements at an offset into memory full of canaries, and a check that the
// canaries are unchanged.
func guarded(t *testing.T, name string, n, offset int) (x []float32, check func()) {
	const margin = 64
	whole := make([]float32, n+2*margin+offset)
	for i := range whole {
		whole[i] = canary
	}
	lo := margin + offset
	return whole[lo : lo+n : lo+n], func() {
		for i, v := range whole {
			if (i < lo || i >= lo+n) && v != canary {
				t.Fatalf("%s, length %d: element %d was written", name, n, i-lo)
			}
		}
	}
}

func TestTiersAgree(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		tier := active
		rng := rand.New(rand.NewPCG(5, 6))
		for i, op := range operations {
			for _, n := range lengths {
				compare(t, op, n, []float64{0, 0.2}[(n+i)%2], rng, tier, nil)
				for alias := range op.out * op.in {
					if n >= chunk || !inPlace(op.name) {
						break
					}
					compare(t, op, n, 0, rng, tier, func(out, in [][]float32) { in[alias%op.in] = out[alias/op.in] })
				}
			}
		}
	})
}

// compare runs op with the kernels of a tier and with the generic ones on the same numbers.
func compare(t *testing.T, op operation, n int, share float64, rng *rand.Rand, tier kernels, alias func(out, in [][]float32)) {
	t.Helper()
	var got, want [2][][]float32 // out and in
	var checks []func()
	for side, count := range []int{op.out, op.in} {
		for i := range count {
			x, check := guarded(t, fmt.Sprint(op.name, " slice ", side, ".", i), n, rng.IntN(17))
			fill(rng, x, share)
			checks = append(checks, check)
			got[side] = append(got[side], x)
			want[side] = append(want[side], append([]float32{}, x...))
		}
	}
	if alias != nil {
		alias(got[0], got[1])
		alias(want[0], want[1])
	}
	active = tier
	r := op.run(got[0], got[1])
	active = generic
	if w := op.run(want[0], want[1]); !same(r, w) {
		t.Fatalf("%s, length %d: %v, want %v", op.name, n, r, w)
	}
	for side := range got {
		for i := range got[side] {
			for j, g := range got[side][i] {
				if w := want[side][i][j]; !same(g, w) {
					t.Fatalf("%s, length %d, slice %d.%d: element %d is %v, want %v", op.name, n, side, i, j, g, w)
				}
			}
		}
	}
	for _, check := range checks {
		check()
	}
}

func TestElementsAgainstFloat64(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 8))
		const n = 1003
		for _, op := range operations {
			if op.element == nil {
				continue
			}
			var out, before, in [][]float32
			for range op.out {
				x := make([]float32, n)
				fill(rng, x, 0)
				for i := range x {
					x[i] = float32(math.Abs(float64(x[i]))) // AdamW's second moment is not negative
				}
				out, before = append(out, x), append(before, append([]float32{}, x...))
			}
			for range op.in {
				x := make([]float32, n)
				fill(rng, x, 0)
				in = append(in, x)
			}
			op.run(out, in)
			for j := range n {
				want, args := column(before, j), column(in, j)
				op.element(want, args)
				for i := range out {
					if d := math.Abs(float64(out[i][j]) - want[i]); d > 1e-6*(1+math.Abs(want[i])) {
						t.Fatalf("%s of %v: output %d is %v, want %v", op.name, args, i, out[i][j], want[i])
					}
				}
			}
		}
	})
}

func column(rows [][]float32, j int) []float64 {
	var c []float64
	for _, r := range rows {
		c = append(c, float64(r[j]))
	}
	return c
}
