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

// grouped multiplies each row by the matrix of its group; other rows keep what they have.
func grouped(rows, old dense, matrix func(g int) dense) (want, mag dense) {
	want, mag = zeros(old.rows, old.cols), zeros(old.rows, old.cols)
	for r := range rows.rows {
		g := groupOf(r)
		if g < 0 {
			copy(want.row(r), old.row(r))
			continue
		}
		c, m := product(dense{1, rows.cols, rows.row(r)}, matrix(g))
		copy(want.row(r), c.v)
		copy(mag.row(r), m.v)
	}
	return want, mag
}

func TestGroupedMatMul(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		w, x, y := experts(g), g.matrix(groupRows, groupK), g.matrix(groupRows, groupN)
		want, mag := grouped(values(x.Matrix), values(y.Matrix), func(e int) dense { return values(w.Index(e).Mat().T()) })
		GroupedMatMul(ex, y.Matrix, x.Matrix, w, groupEnds)
		near(t, "y", y.Matrix, want, scaled(mag, groupK*eps32))
		y.intact(t)
	})
}

func TestGroupedDgrad(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		w, dy, dx := experts(g), g.matrix(groupRows, groupN), g.matrix(groupRows, groupK)
		want, mag := grouped(values(dy.Matrix), values(dx.Matrix), func(e int) dense { return values(w.Index(e).Mat()) })
		GroupedDgrad(ex, dx.Matrix, dy.Matrix, w, groupEnds)
		near(t, "dx", dx.Matrix, want, scaled(mag, groupN*eps32))
		dx.intact(t)
	})
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

// TestGroupedIsMatMulPerGroup: which rows share a batch does not show in the result.
func TestGroupedIsMatMulPerGroup(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		w, x := experts(g), g.matrix(groupRows, groupK)
		y, one := g.matrix(groupRows, groupN), g.matrix(1, groupN)
		GroupedMatMul(ex, y.Matrix, x.Matrix, w, groupEnds)
		for r := range int(groupEnds[len(groupEnds)-1]) {
			MatMul(ex, one.Matrix, x.RowSlice(r, r+1), w.Index(groupOf(r)).Mat().T())
			same(t, "row", y.RowSlice(r, r+1), values(one.Matrix))
		}
	})
}

// Gradients that are stored past the caches, on several threads, are those of one product after the
// other.
func TestGroupedWgradStreamed(t *testing.T) {
	const rows, n, k = 300, 512, streamedGradient / 512 / 2
	ex, one := NewParallelExec(3), NewExec()
	defer ex.Close()
	dy, x, ends := random(1, BF16, rows, n), random(2, BF16, rows, k), []int32{170, rows}
	got, want := New(FP32, 2, n, k), New(FP32, 2, n, k)
	GroupedWgrad(ex, got, dy.Mat(), x.Mat(), ends, false)
	begin := 0
	for g, end := range ends {
		MatMul(one, want.Index(g).Mat(), dy.Slice(begin, int(end)).Mat().T(), x.Slice(begin, int(end)).Mat())
		begin = int(end)
	}
	same(t, "dw", got.Mat(), values(want.Mat()))
}

func TestGroupedPanics(t *testing.T) {
	ex := NewExec()
	x, y, w := New(FP32, 4, 2).Mat(), New(FP32, 4, 3).Mat(), New(FP32, 2, 3, 2)
	for want, ends := range map[string][]int32{
		"group 1 ends at row 2, before it begins at 3": {3, 2},
		"group 0 ends at row -1":                       {-1, 2},
		"rows [1, 5) of a matrix of 4 rows":            {1, 5},
		"slice [2, 3) of a first dimension of 2":       {1, 2, 3},
	} {
		mustPanic(t, want, func() { GroupedMatMul(ex, y, x, w, ends) })
	}
}
