package tensor

import (
	"math"
	"testing"
)

// wholeCrossEntropy returns the loss of logits that are a single block, and replaces them by their
// gradient.
func wholeCrossEntropy(ex *Exec, c *CrossEntropy, logits Matrix, targets []int32, scale float32) float64 {
	c.Reset(targets, logits.Cols)
	c.Add(ex, logits, 0)
	c.Gradient(ex, logits, logits, 0, scale)
	return c.Loss(0, len(targets))
}

// crossEntropy is CrossEntropy's value in float64.
func crossEntropy(logits dense, targets []int32) float64 {
	var sum float64
	for r, target := range targets {
		if target >= 0 {
			sum -= math.Log(softmax(logits.row(r))[target])
		}
	}
	return sum
}

func TestCrossEntropyOfHugeLogits(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		target int32
		loss   float64
		grad   []float64
	}{
		{[]float32{3e38, -3e38, 0}, 0, 0, []float64{0, 0, 0}},
		{[]float32{3e38, -3e38, 0}, 1, 2 * float64(float32(3e38)), []float64{1, -1, 0}},
		{[]float32{1e4, 1e4}, 0, math.Ln2, []float64{-0.5, 0.5}},
		{[]float32{-1e4, -1e4, -1e4, -1e4}, 3, math.Log(4), []float64{0.25, 0.25, 0.25, -0.75}},
	} {
		logits := vectorOf(c.logits)
		if got := wholeCrossEntropy(NewExec(), new(CrossEntropy), logits, []int32{c.target}, 1); math.Abs(got-c.loss) > 1e-6*c.loss {
			t.Errorf("%v, target %d: loss %v, want %v", c.logits, c.target, got, c.loss)
		}
		near(t, "gradient", logits, dense{1, len(c.grad), c.grad}, absolute(1e-6))
	}
}

// Blocks of any size give the same loss up to rounding, and gradients as exact as those of a single
// block: each is rounded once.
func TestCrossEntropyInBlocks(t *testing.T) {
	const scale, vocab = 0.37, 1003
	targets := []int32{0, -1, 1002, 500, 64, 63}
	for _, dtype := range []DType{FP32, BF16} {
		for _, block := range []int{1, 64, 501, 1002, 1003} {
			logits := random(3, FP32, len(targets), vocab).Mat()
			for r := range targets { // the maximum is in the last, first, or another block
				logits.f32Row(r)[(r*397+vocab-1)%vocab] += 20
			}
			in := values(logits)
			d := New(dtype, len(targets), vocab).Mat()
			var c CrossEntropy
			c.Reset(targets, vocab)
			each := func(f func(lo, hi int)) {
				for lo := 0; lo < vocab; lo += block {
					f(lo, min(lo+block, vocab))
				}
			}
			each(func(lo, hi int) { c.Add(NewExec(), logits.ColSlice(lo, hi), lo) })
			each(func(lo, hi int) { c.Gradient(NewExec(), d.ColSlice(lo, hi), logits.ColSlice(lo, hi), lo, scale) })
			if got, want := c.Loss(0, len(targets)), crossEntropy(in, targets); math.Abs(got-want) > 1e-6*want {
				t.Errorf("%v, blocks of %d: loss %v, want %v", dtype, block, got, want)
			}
			bound := 2e-6 // of each element, for float32 sums and exponentials
			if dtype == BF16 {
				bound = 1.0/256 + 2e-6 // one rounding to 8 bits
			}
			for r, target := range targets {
				p := softmax(in.row(r))
				for i, got := range values(d).row(r) {
					want := 0.0
					if target >= 0 {
						want = scale * p[i]
						if i == int(target) {
							want -= scale
						}
					}
					if math.Abs(got-want) > bound*math.Abs(want)+1e-7*scale*p[i] {
						t.Fatalf("%v, blocks of %d: the gradient of row %d, token %d is %v, want %v", dtype, block, r, i, got, want)
					}
				}
			}
		}
	}
}
