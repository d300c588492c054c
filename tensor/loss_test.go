package tensor

import (
	"math"
	"testing"
)

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

// TestCrossEntropy holds the gradient against numeric differentiation.
func TestCrossEntropy(t *testing.T) {
	const scale = 0.37
	targets := []int32{0, -1, 76, 41, -100}
	for _, margin := range margins {
		logits := newGenerator(FP32, margin).matrix(len(targets), oddCols)
		in := values(logits.Matrix)
		want := crossEntropy(in, targets)
		wantGrad := gradient(in, func() float64 { return scale * crossEntropy(in, targets) })
		if got := CrossEntropy(NewExec(), logits.Matrix, targets, scale); math.Abs(got-want) > 1e-6*want {
			t.Errorf("loss %v, want %v", got, want)
		}
		near(t, "gradient", logits.Matrix, wantGrad, absolute(1e-7))
		logits.intact(t)
	}
}

func TestCrossEntropyIgnoresNegativeTargets(t *testing.T) {
	logits := random(1, FP32, 2, 5)
	logits.F32()[2] = float32(math.NaN())
	if got := CrossEntropy(NewExec(), logits.Mat(), []int32{-1, -2}, 1); got != 0 {
		t.Errorf("loss %v, want 0", got)
	}
	same(t, "gradient", logits.Mat(), zeros(2, 5))
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
		if got := CrossEntropy(NewExec(), logits, []int32{c.target}, 1); math.Abs(got-c.loss) > 1e-6*c.loss {
			t.Errorf("%v, target %d: loss %v, want %v", c.logits, c.target, got, c.loss)
		}
		near(t, "gradient", logits, dense{1, len(c.grad), c.grad}, absolute(1e-6))
	}
}

func TestCrossEntropyPanics(t *testing.T) {
	for want, f := range map[string]func(){
		"2 targets for 3 rows of logits": func() { CrossEntropy(NewExec(), New(FP32, 3, 4).Mat(), []int32{0, 1}, 1) },
		"4 targets for 3 rows of logits": func() { CrossEntropy(NewExec(), New(FP32, 3, 4).Mat(), []int32{0, 1, 2, 3}, 1) },
		"matrix of bf16":                 func() { CrossEntropy(NewExec(), New(BF16, 1, 4).Mat(), []int32{0}, 1) },
		"target 4 of a vocabulary of 4":  func() { CrossEntropy(NewExec(), New(FP32, 1, 4).Mat(), []int32{4}, 1) },
	} {
		mustPanic(t, want, f)
	}
}
