package mx

// The three products against float64 on the same quantized operands.

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor"
)

// A matrix is the float64 values of a quantized matrix.
type matrix struct {
	rows, cols int
	v          []float64
}

func (m matrix) at(r, c int) float64 { return m.v[r*m.cols+c] }

func dequantized(q Tensor) matrix {
	m := matrix{q.Rows(), q.Cols(), make([]float64, q.Rows()*q.Cols())}
	_, width := q.BlockShape()
	for at := range q.rowsOfBlocks(m.rows, 0, m.rows) {
		for r := at.first; r < at.last; r++ {
			for c := range m.cols {
				m.v[r*m.cols+c] = float64(q.Format.Decode(q.Code(r, c))) * float64(q.Scale(at.block, c/width)) * float64(q.GroupScale(at.group))
			}
		}
	}
	return m
}

// relativeL2 compares got with the sum over k of a(i, k)·b(j, k), plus the previous contents.
func relativeL2(got tensor.Matrix, before float64, k int, a, b func(i, k int) float64) float64 {
	ex := tensor.NewExec()
	wide := tensor.New(tensor.FP32, got.Rows, got.Cols)
	tensor.Convert(ex, wide.Mat(), got)
	diff, norm := 0.0, 1e-300
	for i := range got.Rows {
		for j := range got.Cols {
			want := before
			for l := range k {
				want += a(i, l) * b(j, l)
			}
			d := float64(wide.F32()[i*got.Cols+j]) - want
			diff += d * d
			norm += want * want
		}
	}
	return math.Sqrt(diff / norm)
}

func full(dtype tensor.DType, rows, cols int, v float32) tensor.Matrix {
	x := tensor.New(dtype, rows, cols)
	for i := range x.Len() {
		if dtype == tensor.BF16 {
			x.BF16()[i] = tensor.ToBFloat16(v)
		} else {
			x.F32()[i] = v
		}
	}
	return x.Mat()
}

func TestProducts(t *testing.T) {
	ex := tensor.NewExec()
	quantize := func(f Format, d Direction, x tensor.Tensor) Tensor {
		q := New(nil, f, d, x.Dim(0), x.Dim(1))
		Quantize(ex, q, x.Mat(), RCEIL)
		return q
	}
	formats := []struct{ activation, gradient Format }{
		{E4M3, E4M3}, {E4M3, E5M2}, {INT8, INT8},
		{E2M1, E3M2}, {wide4, wide4}, {wide4Square, wide4}, {FP8Row, FP8Row}, {FP8Tile, FP8Row}, {E4M3, wide4}, {FP8Row, INT8}, {sixteen, sixteen},
	}
	shapes := []struct{ m, n, k int }{{64, 96, 128}, {1, 32, 64}, {33, 20, 50}, {7, 65, 31}}
	for _, f := range formats {
		for i, s := range shapes {
			x, w := filled(uint64(i), tensor.BF16, s.m, s.k, normal), filled(9, tensor.FP32, s.n, s.k, normal)
			dy := filled(uint64(i+20), tensor.BF16, s.m, s.n, spread)
			within := func(product string, l2 float64) {
				t.Helper()
				if !(l2 <= 1e-5) {
					t.Errorf("%v, gradients %v, M %d, N %d, K %d: %s is off by %g in relative L2", f.activation, f.gradient, s.m, s.n, s.k, product, l2)
				}
			}
			xRows, wRows := quantize(f.activation, AlongRows, x), quantize(f.activation, AlongRows, w)
			y := full(tensor.FP32, s.m, s.n, 7)
			SumFP32.MatMul(ex, y, xRows, wRows)
			within("y", relativeL2(y, 0, s.k, dequantized(xRows).at, dequantized(wRows).at))

			dyRows, wCols := quantize(f.gradient, AlongRows, dy), quantize(f.activation, AlongCols, w)
			dx := full(tensor.FP32, s.m, s.k, 7)
			SumFP32.Dgrad(ex, dx, dyRows, wCols)
			across := func(m matrix) func(i, k int) float64 { return func(i, k int) float64 { return m.at(k, i) } }
			within("dx", relativeL2(dx, 0, s.n, dequantized(dyRows).at, across(dequantized(wCols))))

			dyCols, xCols := quantize(f.gradient, AlongCols, dy), quantize(f.activation, AlongCols, x)
			dw := full(tensor.FP32, s.n, s.k, 0.5)
			SumFP32.Wgrad(ex, dw, dyCols, xCols, 0, true)
			within("dw", relativeL2(dw, 0.5, s.m, across(dequantized(dyCols)), across(dequantized(xCols))))
			SumFP32.Wgrad(ex, dw, dyCols, xCols, 0, false)
			within("stored dw", relativeL2(dw, 0, s.m, across(dequantized(dyCols)), across(dequantized(xCols))))
		}
	}
}

// TestGroupedProducts compares each group with the product of that group alone, bit for bit.
func TestGroupedProducts(t *testing.T) {
	const n, k, rows = 40, 70, 150
	for _, f := range []Format{E4M3, INT8, E2M1, wide4, wide4Square, FP8Row, FP8Tile} {
		for threads := 1; threads <= 3; threads++ {
			groupedProducts(t, f, threads, n, k, []int32{0, 1, 34, 34, 66, rows})
		}
	}
}

// Gradients that are written with non-temporal stores, and products whose rows are divided over
// threads.
func TestLargeGroupedProducts(t *testing.T) {
	for _, f := range []Format{E4M3, INT8} {
		groupedProducts(t, f, 3, 512, 288, []int32{70, 300})
	}
}

func groupedProducts(t *testing.T, f Format, threads, n, k int, ends []int32) {
	t.Helper()
	ex := tensor.NewParallelExec(threads)
	defer ex.Close()
	rows := int(ends[len(ends)-1])
	x, dy, w := filled(1, tensor.BF16, rows, k, normal), filled(2, tensor.BF16, rows, n, spread), filled(3, tensor.BF16, len(ends)*n, k, normal)
	xRows, xCols := NewGrouped(nil, f, AlongRows, k, ends), NewGrouped(nil, f, AlongCols, k, ends)
	dyRows, dyCols := NewGrouped(nil, f, AlongRows, n, ends), NewGrouped(nil, f, AlongCols, n, ends)
	wRows, wCols := NewGrouped(nil, f, AlongRows, k, EqualGroups(len(ends), n)), NewGrouped(nil, f, AlongCols, k, EqualGroups(len(ends), n))
	QuantizeBoth(ex, xRows, xCols, x.Mat(), RCEIL)
	QuantizeBoth(ex, dyRows, dyCols, dy.Mat(), RCEIL)
	QuantizeBoth(ex, wRows, wCols, w.Mat(), RCEIL)

	y, dx, dw := tensor.New(tensor.BF16, rows, n), tensor.New(tensor.BF16, rows, k), tensor.New(tensor.FP32, len(ends), n, k)
	SumFP32.GroupedMatMul(ex, y.Mat(), xRows, wRows, ends)
	SumFP32.GroupedDgrad(ex, dx.Mat(), dyRows, wCols, ends)
	for i := range dw.F32() {
		dw.F32()[i] = 7
	}
	SumFP32.GroupedWgrad(ex, dw, dyCols, xCols, false)

	alone := func(d Direction, x tensor.Tensor, lo, hi int) Tensor {
		q := New(nil, f, d, hi-lo, x.Dim(1))
		Quantize(ex, q, x.Slice(lo, hi).Mat(), RCEIL)
		return q
	}
	same := func(name string, g int, got, want tensor.Tensor) {
		t.Helper()
		if string(got.Bytes()) != string(want.Bytes()) {
			t.Errorf("%v on %d threads: %s of group %d differs from that group alone", f, threads, name, g)
		}
	}
	one := tensor.NewExec()
	for g := range ends {
		lo, hi := group(ends, g)
		yg, dxg, dwg := tensor.New(tensor.BF16, hi-lo, n), tensor.New(tensor.BF16, hi-lo, k), tensor.New(tensor.FP32, n, k)
		SumFP32.MatMul(one, yg.Mat(), alone(AlongRows, x, lo, hi), alone(AlongRows, w, g*n, (g+1)*n))
		SumFP32.Dgrad(one, dxg.Mat(), alone(AlongRows, dy, lo, hi), alone(AlongCols, w, g*n, (g+1)*n))
		SumFP32.Wgrad(one, dwg.Mat(), alone(AlongCols, dy, lo, hi), alone(AlongCols, x, lo, hi), 0, false)
		same("y", g, y.Slice(lo, hi), yg)
		same("dx", g, dx.Slice(lo, hi), dxg)
		same("dw", g, dw.Index(g), dwg)
	}
}

// TestWgradRows: parts of a gradient's rows have the bits of one product, with each format and sum.
func TestWgradRows(t *testing.T) {
	const rows, n, k, span = 256, 384, 48, 128
	ex := tensor.NewExec()
	x, dy := filled(1, tensor.BF16, rows, k, spread), filled(2, tensor.BF16, rows, n, spread)
	for i := range dy.BF16() {
		dy.BF16()[i] = tensor.ToBFloat16(dy.BF16()[i].Float32() * float32(i%n/32+1)) // other scales in other columns
	}
	for _, f := range Formats() {
		cols := func(x tensor.Tensor) Tensor {
			q := New(nil, f, AlongCols, rows, x.Dim(1))
			Cast{Format: f}.Quantize(ex, q, x.Mat(), Draws{})
			return q
		}
		left, right := cols(dy), cols(x)
		for _, sum := range Sums() {
			if sum.Multiplies(f, f) != nil {
				continue
			}
			whole, parts := tensor.New(tensor.FP32, n, k), tensor.New(tensor.FP32, n, k)
			for _, accumulate := range []bool{false, true} {
				sum.Wgrad(ex, whole.Mat(), left, right, span, accumulate)
				for _, cut := range [][2]int{{0, 128}, {128, 256}, {256, 384}} {
					sum.WgradRows(ex, parts.Mat().RowSlice(cut[0], cut[1]), left, right, cut[0], span, accumulate)
				}
				if !slices.Equal(parts.F32(), whole.F32()) {
					t.Errorf("%v, %v, added %t: the rows in parts differ from one product", f, sum, accumulate)
				}
			}
		}
	}
}

// TestMisuse checks that programming mistakes panic with a clear message.
func TestMisuse(t *testing.T) {
	ex := tensor.NewExec()
	rows, cols := New(nil, E4M3, AlongRows, 64, 32), New(nil, E4M3, AlongCols, 64, 32)
	grouped := NewGrouped(nil, E4M3, AlongCols, 32, []int32{10, 64})
	x := tensor.New(tensor.FP32, 64, 32).Mat()
	tests := []struct {
		want string
		do   func()
	}{
		{"the blocks run along columns, but must run along rows", func() { QuantizeBoth(ex, cols, cols, x, RCEIL) }},
		{"the blocks run along rows, but must run along columns", func() { SumFP32.Wgrad(ex, tensor.New(tensor.FP32, 32, 32).Mat(), rows, cols, 0, false) }},
		{"the matrix is [64, 32]", func() { Quantize(ex, rows, x.RowSlice(0, 63), RCEIL) }},
		{"spans of 48 codes", func() { SumFP32.Wgrad(ex, tensor.New(tensor.FP32, 32, 32).Mat(), cols, cols, 48, false) }},
		{"in several groups", func() { grouped.Operand() }},
		{"the groups of dy end at [10 64] and those of x at [20 64]", func() {
			SumFP32.GroupedWgrad(ex, tensor.New(tensor.FP32, 2, 32, 32), grouped, NewGrouped(nil, E4M3, AlongCols, 32, []int32{20, 64}), false)
		}},
		{"use Group", func() { cols.RowSlice(0, 1) }},
		{"before its first row", func() { NewGrouped(nil, E4M3, AlongCols, 32, []int32{10, 3}) }},
		{"whole bytes", func() { New(nil, NVFP4, AlongRows, 2, 3) }},
		{"square", func() { New(nil, NVFP4, AlongRows, 2, 16).WithBlocks(AlongCols) }},
	}
	for _, tt := range tests {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tt.want) {
					t.Errorf("panic %q, want one with %q", got, tt.want)
				}
			}()
			tt.do()
		}()
	}
}
