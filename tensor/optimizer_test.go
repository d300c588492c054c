package tensor

import (
	"bytes"
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
		state := AdamWState{Master: w, ExpAvg: m, ExpAvgSq: v}
		AdamW(NewExec(), state, state, New(BF16, oddCols), grad, NewAdamWStep(lr, beta1, beta2, eps, decay, gradScale, step), new(UpdateSums))
		near(t, "master", w.Mat(), wantW, absolute(1e-6))
		near(t, "expAvg", m.Mat(), wantM, absolute(1e-6))
		near(t, "expAvgSq", v.Mat(), wantV, absolute(1e-6))
	}
}

// TestAdamWElsewhere: the update of another state has the bits of one in place, whatever the number
// of threads, the length and where the memory begins, leaves the state that it reads, and gives the
// weights to work with in either type.
func TestAdamWElsewhere(t *testing.T) {
	for _, moments := range []DType{FP32, BF16} {
		t.Run(moments.String(), func(t *testing.T) { testAdamWElsewhere(t, moments) })
	}
}

func testAdamWElsewhere(t *testing.T, moments DType) {
	step := NewAdamWStep(3e-3, 0.9, 0.95, 1e-8, 0.1, 0.5, 3)
	const large = streamedBytes/8 + 1000
	for _, n := range []int{0, 1, 17, 5003, large} {
		seeds, grad := randomState(n).in(moments), random(4, FP32, n)
		want := seeds.copied(0)
		AdamW(NewExec(), want, want, New(FP32, n), grad, step, new(UpdateSums))
		for _, threads := range []int{1, 2} {
			ex := NewParallelExec(threads)
			defer ex.Close()
			for _, offset := range []int{0, 1} {
				src, dst := seeds.copied(0), seeds.copied(offset)
				for _, x := range dst.arrays() {
					x.Zero()
				}
				work, rounded := New(BF16, n), New(BF16, n)
				if offset > 0 {
					work, rounded = New(FP32, n), New(FP32, n)
				}
				AdamW(ex, dst, src, work, grad, step, new(UpdateSums))
				if Convert(ex, rounded.Mat(), want.Master.Mat()); !bytes.Equal(work.Bytes(), rounded.Bytes()) {
					t.Errorf("%d elements at an offset of %d, %d threads: the %v weights to work with are not the master weights", n, offset, threads, work.DType())
				}
				if !dst.equal(want) {
					t.Errorf("%d elements at an offset of %d, %d threads: other bits than in place", n, offset, threads)
				}
				if !src.equal(seeds) {
					t.Errorf("%d elements at an offset of %d, %d threads: the state that is read was changed", n, offset, threads)
				}
			}
		}
	}
}

func (s AdamWState) arrays() [3]Tensor { return [3]Tensor{s.Master, s.ExpAvg, s.ExpAvgSq} }

func (s AdamWState) equal(other AdamWState) bool {
	for i, x := range s.arrays() {
		if !bytes.Equal(x.Bytes(), other.arrays()[i].Bytes()) {
			return false
		}
	}
	return true
}

// copied is a copy that begins offset elements behind where New would put it.
func (s AdamWState) copied(offset int) AdamWState {
	moved := func(x Tensor) Tensor {
		c := New(x.DType(), offset+x.Len()).Slice(offset, offset+x.Len())
		copy(c.Bytes(), x.Bytes())
		return c
	}
	return AdamWState{Master: moved(s.Master), ExpAvg: moved(s.ExpAvg), ExpAvgSq: moved(s.ExpAvgSq)}
}

// in returns the state with moments of the given type.
func (s AdamWState) in(moments DType) AdamWState {
	return AdamWState{s.Master, converted(s.ExpAvg, moments), converted(s.ExpAvgSq, moments)}
}

func converted(x Tensor, to DType) Tensor {
	c := New(to, x.Len())
	Convert(NewExec(), c.Mat(), x.Mat())
	return c
}

// randomState is weights and moments, the second without a sign.
func randomState(n int) AdamWState {
	s := AdamWState{Master: random(1, FP32, n), ExpAvg: random(2, FP32, n), ExpAvgSq: random(3, FP32, n)}
	for i, v := range s.ExpAvgSq.F32() {
		s.ExpAvgSq.F32()[i] = v * v
	}
	return s
}

func TestSumSquares(t *testing.T) {
	x := random(1, FP32, 3, oddCols)
	x.F32()[7] = 1e30 // its square is no FP32 number
	v := values(x.Mat())
	for _, piece := range []int{1, 7, 256, x.Len(), 10_000} {
		sums := SumSquares(NewExec(), x, piece)
		if n := (x.Len() + piece - 1) / piece; len(sums) != n {
			t.Fatalf("%d sums of pieces of %d, want %d", len(sums), piece, n)
		}
		if got, want := total(sums), inner(v, v); math.Abs(got-want) > 1e-14*want {
			t.Errorf("pieces of %d: %v, want %v", piece, got, want)
		}
		square := float64(x.F32()[7]) * float64(x.F32()[7])
		if at := 7 / piece; math.Abs(sums[at]-square) > 1e-14*square {
			t.Errorf("pieces of %d: number %d is %v, want %v", piece, at, sums[at], square)
		}
	}
}

func total(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum
}
