package optim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
)

// muon has a large weight decay, so that it matters within a few steps.
func muon() Muon {
	return Muon{Momentum: 0.9, Scale: "match_rms_adamw", NewtonSchulz: tensor.BF16, Rate: 1, Rest: adamw()}
}

// reference64 is Newton-Schulz of a scale in float64, always on the wide form of a matrix. The
// coefficients are those of Jordan's Muon and torch.optim.Muon, five times, or of DeepSeek-V4.
func reference64(x []float64, rows, cols int, scale string) []float64 {
	if rows > cols {
		return transposed(reference64(transposed(x, rows, cols), cols, rows, scale), cols, rows)
	}
	steps := map[string]int{"deepseek_v4": 10, "match_rms_adamw": 5, "original": 5}[scale]
	squares := 0.0
	for _, v := range x {
		squares += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / (math.Sqrt(squares) + 1e-7)
	}
	for step := range steps {
		a, b, c := 3.4445, -4.7750, 2.0315
		if step >= 8 {
			a, b, c = 2, -1.5, 0.5
		}
		gram := times(y, transposed(y, rows, cols), rows, cols, rows)
		square := times(gram, gram, rows, rows, rows)
		for i, g := range gram {
			square[i] = b*g + c*square[i]
		}
		for i, p := range times(square, y, rows, rows, cols) {
			y[i] = a*y[i] + p
		}
	}
	return y
}

// times returns the [m, n] product of a: [m, k] and b: [k, n].
func times(a, b []float64, m, k, n int) []float64 {
	c := make([]float64, m*n)
	for i := range m {
		for l := range k {
			for j := range n {
				c[i*n+j] += a[i*k+l] * b[l*n+j]
			}
		}
	}
	return c
}

func transposed(x []float64, rows, cols int) []float64 {
	y := make([]float64, len(x))
	for i := range rows {
		for j := range cols {
			y[j*rows+i] = x[i*cols+j]
		}
	}
	return y
}

// matrixOf returns a random matrix, and the same in float64.
func matrixOf(seed uint64, rows, cols int, scale float64) (tensor.Tensor, []float64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	x, wide := tensor.New(tensor.FP32, rows, cols), make([]float64, rows*cols)
	for i := range wide {
		x.F32()[i] = float32(scale * rng.NormFloat64())
		wide[i] = float64(x.F32()[i])
	}
	return x, wide
}

// Newton-Schulz follows float64 for wide, tall and square matrices of any magnitude, within the
// roundings of its operands. Its bits do not depend on the number of threads.
func TestNewtonSchulz(t *testing.T) {
	for i, shape := range [][2]int{{1, 1}, {1, 40}, {40, 1}, {33, 70}, {70, 33}, {64, 64}, {300, 130}} {
		for _, scale := range []float64{1e-8, 1, 1e4} {
			x, wide := matrixOf(uint64(i), shape[0], shape[1], scale)
			want := reference64(wide, shape[0], shape[1], "original")
			for dtype, bound := range map[tensor.DType]float64{tensor.FP32: 1e-5, tensor.BF16: 3e-2} {
				got := NewtonSchulz(tensor.NewExec(), x, dtype, fiveSteps)
				if e := distance(widened(got), want); !(e <= bound) {
					t.Errorf("%v, %v times %g: off by %.2g, bound %g", dtype, shape, scale, e, bound)
				}
				ex := tensor.NewParallelExec(2)
				if again := NewtonSchulz(ex, x, dtype, fiveSteps); !slices.Equal(again.Bytes(), got.Bytes()) {
					t.Errorf("%v, %v: other bits on two threads", dtype, shape)
				}
				ex.Close()
			}
		}
	}
	zero := NewtonSchulz(tensor.NewExec(), tensor.New(tensor.FP32, 3, 5), tensor.BF16, fiveSteps)
	if slices.ContainsFunc(widened(zero), func(v float32) bool { return v != 0 }) {
		t.Errorf("zeros give %v", widened(zero))
	}
}

// distance returns ‖got - want‖ / ‖want‖.
func distance(got []float32, want []float64) float64 {
	var diff, norm float64
	for i, w := range want {
		diff += (float64(got[i]) - w) * (float64(got[i]) - w)
		norm += w * w
	}
	return math.Sqrt(diff / norm)
}

// Steps of tall and wide matrices follow the formulas in float64, with any scale, a clipped
// gradient, QK-clip and another rate for matrices. So do those of two matrices in one parameter.
// TestMuonReference has those of PyTorch.
func TestMuonStep(t *testing.T) {
	for _, scale := range MuonScales() {
		checkMuonSteps(t, scale, 24, 10, 0)
		checkMuonSteps(t, scale, 10, 24, 0)
		checkMuonSteps(t, scale, 48, 10, 2)
	}
}

func checkMuonSteps(t *testing.T, scale string, rows, cols, matrices int) {
	t.Helper()
	const lr, clip = 0.05, 2.0
	rule := muon()
	rule.Scale, rule.NewtonSchulz, rule.Rate, rule.QKClip = scale, tensor.FP32, 3, 4
	g := group("w", nil, tensor.FP32, 0, rows*cols)
	g.Params[0].Dims, g.Params[0].Class, g.Params[0].Matrices = []int{rows, cols}, moe.Linear, matrices
	g.Params[0].Heads = &moe.HeadRows{Top: []float32{8, 1}, Rows: rows / 2, Root: 3, Whole: 2}
	o := New(tensor.NewExec(), []*moe.Group{g}, collective.NewWorld(1).Comm(0), rule)
	o.ClipNorm = clip
	if err := o.Init(1); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if got, want := float64(o.ex.Peak()), rule.Scratch(rows, cols); matrices == 0 && got < want || got > want+4*tensor.Alignment {
			t.Errorf("%s: an update has taken %g bytes of scratch memory, estimated %g", scale, got, want)
		}
	}()
	factor := map[string]float64{"original": max(1, math.Sqrt(float64(rows/max(matrices, 1))/float64(cols))), "match_rms_adamw": 0.2 * math.Sqrt(24), "deepseek_v4": 0.18 * math.Sqrt(24)}[scale]
	var w []float64
	for _, v := range g.Work.F32() {
		w = append(w, float64(v))
	}
	momentum, direction := make([]float64, len(w)), make([]float64, len(w))
	for step := range 4 {
		grad, wide := matrixOf(uint64(step), rows, cols, 1)
		copy(g.Grad.F32(), grad.F32())
		norm := o.step(t, lr)
		for i, v := range wide {
			v *= clip / norm
			momentum[i] = 0.9*momentum[i] + 0.1*v
			direction[i] = 0.9*momentum[i] + 0.1*v
		}
		var o []float64
		for part := range slices.Chunk(direction, len(w)/max(matrices, 1)) {
			o = append(o, reference64(part, len(part)/cols, cols, scale)...)
		}
		for i, v := range o {
			w[i] = (1-3*lr*0.1)*w[i] - 3*lr*factor*v
			switch row := i / cols; { // QK-clip halves the scores of the first head
			case row < 3:
				w[i] *= math.Sqrt(0.5)
			case row < 5:
				w[i] *= 0.5
			}
		}
		if e := distance(g.Work.F32(), w); !(e <= 1e-5) {
			t.Errorf("%s, step %d of %dx%d: off by %.2g", scale, step, rows, cols, e)
		}
	}
}
