package tensor

import (
	"math"
	"testing"
)

// Groups 0, 3 and 5 are empty, and the rows behind the last group belong to nobody.
var (
	groupEnds = []int32{0, 5, 6, 6, 39, 39}
	groupOf   = func(row int) int {
		for g, end := range groupEnds {
			if row < int(end) {
				return g
			}
		}
		return -1
	}
)

const groupRows, groupK, groupN = 43, 17, 35

func experts(g *generator) Tensor {
	w := New(g.dtype, len(groupEnds), groupN, groupK)
	fill(w.Mat(), g.NormFloat64)
	return w
}

func TestGroupedWgrad(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		dw, dy, x := New(FP32, len(groupEnds), groupN, groupK), g.matrix(groupRows, groupN), g.matrix(groupRows, groupK)
		fill(dw.Mat(), g.NormFloat64)
		want, mag, stored := values(dw.Mat()), zeros(len(groupEnds)*groupN, groupK), New(FP32, len(groupEnds), groupN, groupK)
		for r := range groupRows {
			e := groupOf(r)
			for n := range groupN {
				for k := range groupK {
					if e < 0 {
						set(dy.Matrix, r, n, math.NaN()) // rows of no group must not be read
						continue
					}
					term := get(dy.Matrix, r, n) * get(x.Matrix, r, k)
					*want.at(e*groupN+n, k) += term
					*mag.at(e*groupN+n, k) += math.Abs(term)
				}
			}
		}
		GroupedWgrad(ex, stored, dy.Matrix, x.Matrix, groupEnds, true)
		sum := values(stored.Mat())
		GroupedWgrad(ex, dw, dy.Matrix, x.Matrix, groupEnds, true)
		near(t, "dw", dw.Mat(), want, scaled(mag, groupRows*eps32))
		fill(stored.Mat(), func() float64 { return math.NaN() })
		GroupedWgrad(ex, stored, dy.Matrix, x.Matrix, groupEnds, false)
		same(t, "stored dw", stored.Mat(), sum)
	})
}

// TestGroupedIsMatMulPerGroup: which rows share a batch does not show in the result. Rows of no
// group stay as they are.
func TestGroupedIsMatMulPerGroup(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		w, x, dx := experts(g), g.matrix(groupRows, groupK), g.matrix(groupRows, groupK)
		y, one, back := g.matrix(groupRows, groupN), g.matrix(1, groupN), g.matrix(1, groupK)
		last := int(groupEnds[len(groupEnds)-1])
		rest := values(y.RowSlice(last, groupRows))
		GroupedMatMul(ex, y.Matrix, x.Matrix, w, groupEnds)
		GroupedDgrad(ex, dx.Matrix, y.Matrix, w, groupEnds)
		for r := range last {
			MatMul(ex, one.Matrix, x.RowSlice(r, r+1), w.Index(groupOf(r)).Mat().T())
			MatMul(ex, back.Matrix, y.RowSlice(r, r+1), w.Index(groupOf(r)).Mat())
			same(t, "row", y.RowSlice(r, r+1), values(one.Matrix))
			same(t, "gradient", dx.RowSlice(r, r+1), values(back.Matrix))
		}
		same(t, "rest", y.RowSlice(last, groupRows), rest)
		y.intact(t)
		dx.intact(t)
	})
}

// Gradients that are stored past the caches, on several threads, are those of one product after the
// other. That of a group without rows is zero.
func TestGroupedWgradStreamed(t *testing.T) {
	const rows, n, k = 300, 512, streamedGradient / 512 / 2
	ex, one := NewParallelExec(3), NewExec()
	defer ex.Close()
	dy, x, ends := random(1, BF16, rows, n), random(2, BF16, rows, k), []int32{170, 170, rows}
	got, want := random(3, FP32, 3, n, k), New(FP32, 3, n, k)
	GroupedWgrad(ex, got, dy.Mat(), x.Mat(), ends, false)
	begin := 0
	for g, end := range ends {
		MatMul(one, want.Index(g).Mat(), dy.Slice(begin, int(end)).Mat().T(), x.Slice(begin, int(end)).Mat())
		begin = int(end)
	}
	same(t, "dw", got.Mat(), values(want.Mat()))
}
