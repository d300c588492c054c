package tensor

import (
	"slices"
	"testing"
)

func TestMatrixViews(t *testing.T) {
	for _, dtype := range floats {
		n := New(dtype, 3, 4)
		next := 0.0
		fill(n.Mat(), func() float64 { next++; return next - 1 })
		m := n.Mat()
		for _, c := range []struct {
			name string
			m    Matrix
			want []float64
		}{
			{"transposed", m.T(), []float64{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}},
			{"rows", m.RowSlice(1, 3), []float64{4, 5, 6, 7, 8, 9, 10, 11}},
			{"columns", m.ColSlice(1, 3), []float64{1, 2, 5, 6, 9, 10}},
			{"columns of rows", m.RowSlice(1, 2).ColSlice(3, 4), []float64{7}},
			{"rows of transposed", m.T().RowSlice(2, 3), []float64{2, 6, 10}},
			{"columns of transposed", m.T().ColSlice(2, 3), []float64{8, 9, 10, 11}},
			{"none at the end", m.RowSlice(3, 3), []float64{}},
		} {
			if got := values(c.m).v; !slices.Equal(got, c.want) {
				t.Errorf("%v %s: %v, want %v", dtype, c.name, got, c.want)
			}
		}
	}
}

// TestEmptySlicesPointIntoTheirBuffer: what lies behind it may be another object, or none.
func TestEmptySlicesPointIntoTheirBuffer(t *testing.T) {
	n := New(FP32, 4, 16)
	if s := n.Slice(4, 4); s.data != n.data {
		t.Error("an empty slice of a tensor points behind it")
	}
	if m := n.Mat(); m.RowSlice(4, 4).data != m.data || m.ColSlice(16, 16).data != m.data {
		t.Error("an empty slice of a matrix points behind it")
	}
}
