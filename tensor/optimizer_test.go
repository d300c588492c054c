package tensor

import (
	"math"
	"testing"
)

// TestAdamW holds three steps against the formulas of torch.optim.AdamW in float64.
func TestAdamW(t *testing.T) {
	const lr, beta1, beta2, eps, decay, gradScale = 3e-3, 0.9, 0.95, 1e-8, 0.1, 0.5
	w, m, v := random(1, FP32, oddCols), New(FP32, oddCols), New(FP32, oddCols)
	wantW, wantM, wantV := values(w.Mat()), zeros(1, oddCols), zeros(1, oddCols)
	for step := 1; step <= 3; step++ {
		grad := random(uint64(10+step), FP32, oddCols)
		for i, g := range values(grad.Mat()).v {
			g *= gradScale
			wantW.v[i] *= 1 - lr*decay
			wantM.v[i] = beta1*wantM.v[i] + (1-beta1)*g
			wantV.v[i] = beta2*wantV.v[i] + (1-beta2)*g*g
			mHat := wantM.v[i] / (1 - math.Pow(beta1, float64(step)))
			vHat := wantV.v[i] / (1 - math.Pow(beta2, float64(step)))
			wantW.v[i] -= lr * mHat / (math.Sqrt(vHat) + eps)
		}
		AdamW(NewExec(), w, m, v, grad, NewAdamWStep(lr, beta1, beta2, eps, decay, gradScale, step))
		near(t, "master", w.Mat(), wantW, absolute(1e-6))
		near(t, "expAvg", m.Mat(), wantM, absolute(1e-6))
		near(t, "expAvgSq", v.Mat(), wantV, absolute(1e-6))
	}
}

func TestAdamWPanics(t *testing.T) {
	step := NewAdamWStep(1, 0.9, 0.9, 1, 0, 1, 1)
	n, short := New(FP32, 4), New(FP32, 3)
	for want, f := range map[string]func(){
		"moments of 3 and 4 and a gradient of 4": func() { AdamW(NewExec(), n, short, n, n, step) },
		"moments of 4 and 3 and a gradient of 4": func() { AdamW(NewExec(), n, n, short, n, step) },
		"moments of 4 and 4 and a gradient of 3": func() { AdamW(NewExec(), n, n, n, short, step) },
		"AdamW of 3 weights":                     func() { AdamW(NewExec(), short, n, n, n, step) },
		"fp32 elements asked of a bf16 tensor":   func() { AdamW(NewExec(), New(BF16, 4), n, n, n, step) },
	} {
		mustPanic(t, want, f)
	}
}

func TestSumSquares(t *testing.T) {
	x := random(1, FP32, 3, oddCols)
	x.F32()[7] = 1e30 // its square is no FP32 number
	v := values(x.Mat())
	if got, want := SumSquares(NewExec(), x), inner(v, v); math.Abs(got-want) > 1e-14*want {
		t.Errorf("%v, want %v", got, want)
	}
}
