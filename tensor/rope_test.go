package tensor

import (
	"math"
	"math/cmplx"
	"testing"
)

const rotaryPairs, rotarySeq, rotaryScale = 5, 7, 1.25

func rotaryFrequencies(pairs int) []float64 {
	freq := make([]float64, pairs)
	for i := range freq {
		freq[i] = math.Pow(10000, -float64(i)/float64(pairs))
	}
	return freq
}

// rotated multiplies each pair, as a complex number, by scale·exp(i·position·freq).
func rotated(x dense, seq int, freq []float64, scale float64) dense {
	y := zeros(x.rows, x.cols)
	for r := range x.rows {
		for i, f := range freq {
			z := complex(*x.at(r, 2*i), *x.at(r, 2*i+1)) * cmplx.Rect(scale, float64(r%seq)*f)
			*y.at(r, 2*i), *y.at(r, 2*i+1) = real(z), imag(z)
		}
	}
	return y
}

func TestRotate(t *testing.T) {
	ex := NewExec()
	freq := rotaryFrequencies(rotaryPairs)
	table := NewRotaryTable(rotarySeq+2, freq, rotaryScale)
	if table.Len() != rotarySeq+2 {
		t.Errorf("%d positions, want %d", table.Len(), rotarySeq+2)
	}
	eachLayout(t, func(t *testing.T, g *generator) {
		x := g.matrix(3*rotarySeq-1, 2*rotaryPairs) // the last sequence is cut short
		before := values(x.Matrix)
		table.Rotate(ex, x.Matrix, rotarySeq)
		near(t, "rotated", x.Matrix, rotated(before, rotarySeq, freq, rotaryScale), absolute(1e-5))
		x.intact(t)
	})
}

// TestRotateHalves: pairs of halves rotate as interleaved ones, also in a part of a table.
func TestRotateHalves(t *testing.T) {
	ex := NewExec()
	freq := rotaryFrequencies(rotaryPairs)
	table := NewRotaryTable(rotarySeq, freq, rotaryScale).Halves()
	eachLayout(t, func(t *testing.T, g *generator) {
		x, part := g.matrix(rotarySeq, 2*rotaryPairs), g.matrix(rotarySeq-2, 2*rotaryPairs)
		before := values(x.Matrix)
		Convert(ex, part.Matrix, x.RowSlice(2, rotarySeq))
		half := func(r, i int) *float64 { return before.at(r, i%2*rotaryPairs+i/2) }
		neighbors := zeros(before.rows, before.cols)
		for i := range neighbors.v {
			neighbors.v[i] = *half(i/before.cols, i%before.cols)
		}
		turned := rotated(neighbors, rotarySeq, freq, rotaryScale)
		for i, v := range turned.v {
			*half(i/before.cols, i%before.cols) = v
		}
		table.Rotate(ex, x.Matrix, rotarySeq)
		near(t, "rotated", x.Matrix, before, absolute(1e-5))
		x.intact(t)
		table.From(2).Rotate(ex, part.Matrix, rotarySeq-2)
		same(t, "rows from position 2 on", part.Matrix, values(x.RowSlice(2, rotarySeq)))
	})
}

// TestRotateBackIsTheTranspose: <Rotate(x), y> = <x, RotateBack(y)>.
func TestRotateBackIsTheTranspose(t *testing.T) {
	ex := NewExec()
	table := NewRotaryTable(rotarySeq, rotaryFrequencies(rotaryPairs), rotaryScale)
	for _, table := range []*RotaryTable{table, table.Halves()} {
		g := newGenerator(FP32, 0)
		x, y := g.matrix(2*rotarySeq, 2*rotaryPairs), g.matrix(2*rotarySeq, 2*rotaryPairs)
		x0, y0 := values(x.Matrix), values(y.Matrix)
		table.Rotate(ex, x.Matrix, rotarySeq)
		table.RotateBack(ex, y.Matrix, rotarySeq)
		if a, b := inner(values(x.Matrix), y0), inner(x0, values(y.Matrix)); math.Abs(a-b) > 1e-5 {
			t.Errorf("<Rotate(x), y> = %v, <x, RotateBack(y)> = %v", a, b)
		}
	}
}

// TestRotaryAnglesAreRounded: at large positions the angle's rounding to float32 shows.
func TestRotaryAnglesAreRounded(t *testing.T) {
	const position, freq = 99_991, 0.7
	table := NewRotaryTable(position+1, []float64{freq}, 1)
	x := New(FP32, position+1, 2)
	x.F32()[2*position] = 1
	table.Rotate(NewExec(), x.Mat(), position+1)
	got := float64(x.F32()[2*position])
	f := float32(freq)
	rounded, exact := math.Cos(float64(position*f)), math.Cos(position*freq)
	if math.Abs(got-rounded) > 1e-6 || math.Abs(exact-rounded) < 1e-4 {
		t.Errorf("cosine %v, want %v (%v if the angle were exact)", got, rounded, exact)
	}
}
