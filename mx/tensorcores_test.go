package mx_test

// Products by the sums of GPUs against the plain rules of package tensorcore, element by element.

import (
	"math"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/tensorcore"
)

// coreRow is a row of the left operand of a product or a column of the right one: elements of one
// group, their block scales and the number of rows that share these.
type coreRow struct {
	t      mx.Tensor
	row, k int
}

// at returns the place of element k in memory.
func (r coreRow) at(k int) (i, j int) {
	if r.t.Blocks == mx.AlongCols {
		return k, r.row
	}
	return r.row, k
}

// scale returns the scale of element k.
func (r coreRow) scale(k int) float32 {
	height, width := r.t.BlockShape()
	i, j := r.at(k)
	return r.t.Scale(i/height, j/width)
}

// element returns element k, times its scale if that is of OCP MX.
func (r coreRow) element(k int) tensorcore.Element {
	i, j := r.at(k)
	e := tensorcore.ElementOf(r.t.Format.Decode(r.t.Code(i, j)), r.t.Format.MinExponent())
	if r.t.Format.Scale == mx.ScaleE8M0 {
		s := r.scale(k)
		e = tensorcore.Element{Value: e.Value * float64(s), Exponent: e.Exponent + math.Ilogb(float64(s))}
	}
	return e
}

// coreDot multiplies by the rules.
func coreDot(p tensorcore.Plan, a, b coreRow) float32 {
	run := a.t.Format.Block[1]
	var left, right []tensorcore.Element
	var terms []tensorcore.Term
	var scales tensorcore.Scales
	var c float32
	for k := 0; k < a.k; k += run {
		end := min(k+run, a.k)
		for i := k; i < end; i++ {
			left, right = append(left, a.element(i)), append(right, b.element(i))
		}
		if scales.A, scales.B = append(scales.A, a.scale(k)), append(scales.B, b.scale(k)); p != tensorcore.B200FP4 {
			continue
		}
		var x, y []float32
		for i := k; i < end; i++ {
			ai, aj := a.at(i)
			bi, bj := b.at(i)
			x, y = append(x, a.t.Format.Decode(a.t.Code(ai, aj))), append(y, b.t.Format.Decode(b.t.Code(bi, bj)))
		}
		least := -6 // of E4M3
		if a.t.Format.Scale == mx.ScaleE8M0 {
			least = -200
		}
		terms = append(terms, tensorcore.Group(x, y, tensorcore.ElementOf(a.scale(k), least), tensorcore.ElementOf(b.scale(k), least)))
		if len(terms)*run == 64 || end == a.k {
			c, terms = tensorcore.BlackwellFP4.Add(c, terms), nil
		}
	}
	switch {
	case a.t.Format.Scale == mx.ScaleNone:
		return p.Dot(left, right) * (a.t.GroupScale(0) * b.t.GroupScale(0))
	case p == tensorcore.B200FP4:
		return c * (a.t.GroupScale(0) * b.t.GroupScale(0))
	case p == tensorcore.H100FP8:
		scales.Squares = b.t.Format.Block[0] > 1
		return p.DotScaled(left, right, scales)
	}
	return p.Dot(left, right)
}

// coreProduct returns the product of two operands of one group, with k elements along the sum.
func coreProduct(p tensorcore.Plan, a, b mx.Tensor, rows, cols, k int) []float32 {
	var out []float32
	for i := range rows {
		for j := range cols {
			out = append(out, coreDot(p, coreRow{a, i, k}, coreRow{b, j, k}))
		}
	}
	return out
}

func TestTensorCores(t *testing.T) {
	const m, n, k = 132, 4, 132
	ends := []int32{100, 100, m}
	for _, tt := range []struct {
		sum         mx.Sum
		plan        tensorcore.Plan
		row, weight mx.Format
		inWgrad     mx.Format
		span        int
	}{
		{mx.SumH100, tensorcore.H100FP8, mx.FP8Row, mx.FP8Tile, mx.FP8Row, 128},
		{mx.SumH100, tensorcore.H100FP8, mx.FP8Tensor, mx.FP8Tensor, mx.FP8Tensor, 128},
		{mx.SumH100NoPromotion, tensorcore.H100FastFP8, mx.FP8Tensor, mx.FP8Tensor, mx.FP8Tensor, 128},
		{mx.SumB200, tensorcore.B200FP8, mx.FP8Tensor, mx.FP8Tensor, mx.FP8Tensor, 100},
		{mx.SumB200, tensorcore.B200FP8, mx.E4M3, mx.E4M3, mx.E5M2, 96},
		{mx.SumB200, tensorcore.B200FP4, mx.NVFP4, mx.NVFP4Tile, nvfp4RHT, 80},
		{mx.SumB200, tensorcore.B200FP4, mx.MXFP4, mx.MXFP4, mx.MXFP4, 96},
	} {
		t.Run(tt.row.String(), func(t *testing.T) {
			ex := tensor.NewParallelExec(3)
			defer ex.Close()
			x, dy, w, experts := random(1, m, k), random(2, m, n), random(3, n, k), random(4, 3*n, k)
			rows := func(x tensor.Tensor, f mx.Format, ends []int32) mx.Tensor {
				return quantizeTo(ex, f, mx.AlongRows, x, ends)
			}
			cols := func(x tensor.Tensor, f mx.Format, ends []int32) mx.Tensor {
				return quantizeTo(ex, f, mx.AlongCols, x, ends)
			}
			compare := func(name string, got, want []float32) {
				t.Helper()
				if n := differing(got, want); n > 0 || len(got) != len(want) {
					t.Errorf("%s: %d of %d elements differ", name, n, len(want))
				}
			}
			y, dx, dw := tensor.New(tensor.FP32, m, n), tensor.New(tensor.FP32, m, k), tensor.New(tensor.FP32, n, k)

			tt.sum.MatMul(ex, y.Mat(), rows(x, tt.row, nil), rows(w, tt.weight, nil))
			compare("forward", y.F32(), coreProduct(tt.plan, rows(x, tt.row, nil), rows(w, tt.weight, nil), m, n, k))

			tt.sum.Dgrad(ex, dx.Mat(), rows(dy, tt.row, nil), cols(w, tt.weight, nil))
			compare("dgrad", dx.F32(), coreProduct(tt.plan, rows(dy, tt.row, nil), cols(w, tt.weight, nil), m, k, n))

			left, right := cols(dy, tt.inWgrad, nil), cols(x, tt.inWgrad, nil)
			tt.sum.Wgrad(ex, dw.Mat(), left, right, tt.span, false)
			var want []float32
			for lo := 0; lo < m; lo += tt.span {
				leaf := coreProduct(tt.plan, rowsOf(left, lo, min(lo+tt.span, m)), rowsOf(right, lo, min(lo+tt.span, m)), n, k, min(tt.span, m-lo))
				for i, v := range want {
					leaf[i] += v
				}
				want = leaf
			}
			compare("wgrad", dw.F32(), want)
			tt.sum.Wgrad(ex, dw.Mat(), left, right, tt.span, true)
			for i := range want {
				want[i] += want[i]
			}
			compare("wgrad added", dw.F32(), want)

			rowEnds, weightEnds := ends, mx.EqualGroups(3, n)
			groupOf := func(q mx.Tensor, ends []int32, g int) (mx.Tensor, int) {
				lo := 0
				if g > 0 {
					lo = int(ends[g-1])
				}
				if q.Ends == nil {
					return q.RowSlice(lo, int(ends[g])), int(ends[g]) - lo
				}
				return q.Group(g), int(ends[g]) - lo
			}
			xs, ws, wt := rows(x, tt.row, rowEnds), rows(experts, tt.weight, weightEnds), cols(experts, tt.weight, weightEnds)
			dys, dyt, xt := rows(dy, tt.row, rowEnds), cols(dy, tt.inWgrad, rowEnds), cols(x, tt.inWgrad, rowEnds)
			dws := tensor.New(tensor.FP32, 3, n, k)
			tt.sum.GroupedMatMul(ex, y.Mat(), xs, ws, ends)
			tt.sum.GroupedDgrad(ex, dx.Mat(), dys, wt, ends)
			tt.sum.GroupedWgrad(ex, dws, dyt, xt, false)
			var forward, dgrad, wgrad []float32
			for g := range ends {
				a, size := groupOf(xs, rowEnds, g)
				b, _ := groupOf(ws, weightEnds, g)
				forward = append(forward, coreProduct(tt.plan, a, b, size, n, k)...)
				a, _ = groupOf(dys, rowEnds, g)
				dgrad = append(dgrad, coreProduct(tt.plan, a, wt.Group(g), size, k, n)...)
				wgrad = append(wgrad, coreProduct(tt.plan, dyt.Group(g), xt.Group(g), n, k, size)...)
			}
			compare("grouped forward", y.F32(), forward)
			compare("grouped dgrad", dx.F32(), dgrad)
			compare("grouped wgrad", dws.F32(), wgrad)
			tt.sum.GroupedWgrad(ex, dws, dyt, xt, true)
			for i := range wgrad {
				wgrad[i] += wgrad[i]
			}
			compare("grouped wgrad added", dws.F32(), wgrad)
		})
	}
}

// differing counts the elements with different bits.
func differing(got, want []float32) (n int) {
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) {
			n++
		}
	}
	return n
}

// TestTensorCoresRefuse: a product that a GPU does not have is an error.
func TestTensorCoresRefuse(t *testing.T) {
	for _, tt := range []struct {
		sum  mx.Sum
		a, b mx.Format
	}{
		{mx.SumH100NoPromotion, mx.FP8Row, mx.FP8Tile}, {mx.SumH100, mx.E4M3, mx.E4M3}, {mx.SumH100, mx.NVFP4, mx.NVFP4Tile},
		{mx.SumB200, mx.FP8Row, mx.FP8Tile}, {mx.SumB200, mx.INT8, mx.INT8}, {mx.SumB200, mx.NVFP4, mx.MXFP4}, {mx.SumB200, mx.E4M3, mx.Format{}},
	} {
		if tt.sum.Multiplies(tt.a, tt.b) == nil {
			t.Errorf("%v multiplies %v and %v", tt.sum, tt.a, tt.b)
		}
	}
	for _, s := range []mx.Sum{mx.SumH100, mx.SumB200} {
		if err := s.Multiplies(mx.Format{}, mx.Format{}); err != nil {
			t.Errorf("%v, BF16: %v", s, err)
		}
	}
}

// TestPlainTensorCores: BF16 products by each sum and number of threads.
func TestPlainTensorCores(t *testing.T) {
	const m, n, k = 160, 18, 40
	ends := []int32{60, 60, m}
	x, dy, w, experts := random(1, m, k), random(2, m, n), random(3, n, k), random(4, 3*n, k).Reshape(3, n, k)
	row := func(x tensor.Tensor, i int, lo, hi int) (all []tensorcore.Element) {
		for j := lo; j < hi; j++ {
			all = append(all, tensorcore.ElementOf(x.BF16()[i*x.Dim(1)+j].Float32(), -126))
		}
		return all
	}
	dots := func(sum mx.Sum, a, b tensor.Tensor, lo, hi int) (out []float32) {
		for i := range a.Dim(0) {
			for j := range b.Dim(0) {
				left, right := row(a, i, lo, hi), row(b, j, lo, hi)
				if sum != mx.SumExact {
					out = append(out, tensorcore.H100BF16.Dot(left, right))
					continue
				}
				total := 0.0
				for l, e := range left {
					total += e.Value * right[l].Value
				}
				out = append(out, float32(total))
			}
		}
		return out
	}
	sumOf := func(x, y []float32) []float32 {
		for i := range x {
			x[i] += y[i]
		}
		return x
	}
	for _, sum := range []mx.Sum{mx.SumExact, mx.SumH100, mx.SumB200} {
		for _, threads := range []int{1, 3} {
			ex := tensor.NewParallelExec(threads)
			ex.Poison = true
			defer ex.Close()
			compare := func(name string, got, want []float32) {
				t.Helper()
				if n := differing(got, want); n > 0 || len(got) != len(want) {
					t.Errorf("%v, %d threads, %s: %d of %d elements differ", sum, threads, name, n, len(want))
				}
			}
			y, dx, dw, dws := tensor.New(tensor.FP32, m, n), tensor.New(tensor.FP32, m, k), tensor.New(tensor.FP32, n, k), tensor.New(tensor.FP32, 3, n, k)
			sum.Multiply(ex, y.Mat(), x.Mat(), w.Mat().T())
			compare("forward", y.F32(), dots(sum, x, w, 0, k))
			sum.Multiply(ex, dx.Mat(), dy.Mat(), w.Mat())
			compare("dgrad", dx.F32(), dots(sum, dy, transpose(w), 0, n))
			if sum.OfGPU() { // a chain goes on, in whole blocks
				sum.Multiply(ex, y.Mat(), x.Mat().ColSlice(0, 16), w.Mat().T().RowSlice(0, 16))
				sum.MultiplyOn(ex, y.Mat(), x.Mat().ColSlice(16, k), w.Mat().T().RowSlice(16, k))
				compare("forward in two parts", y.F32(), dots(sum, x, w, 0, k))
			}
			leaves := sumOf(dots(sum, transpose(dy), transpose(x), 0, 100), dots(sum, transpose(dy), transpose(x), 100, m))
			sum.MultiplyWgrad(ex, dw.Mat(), dy.Mat(), x.Mat(), 100, false)
			compare("wgrad", dw.F32(), leaves)
			sum.MultiplyWgrad(ex, dw.Mat(), dy.Mat(), x.Mat(), 100, true)
			compare("wgrad added", dw.F32(), sumOf(leaves, leaves))
			sum.MultiplyGroups(ex, y.Mat(), x.Mat(), experts, ends)
			sum.MultiplyGroupsDgrad(ex, dx.Mat(), dy.Mat(), experts, ends)
			sum.MultiplyGroupsWgrad(ex, dws, dy.Mat(), x.Mat(), ends, false)
			var forward, dgrad, wgrad []float32
			for g, end := range ends {
				lo := 0
				if g > 0 {
					lo = int(ends[g-1])
				}
				forward = append(forward, dots(sum, x.Slice(lo, int(end)), experts.Index(g), 0, k)...)
				dgrad = append(dgrad, dots(sum, dy.Slice(lo, int(end)), transpose(experts.Index(g)), 0, n)...)
				wgrad = append(wgrad, dots(sum, transpose(dy), transpose(x), lo, int(end))...)
			}
			compare("grouped forward", y.F32(), forward)
			compare("grouped dgrad", dx.F32(), dgrad)
			compare("grouped wgrad", dws.F32(), wgrad)
		}
	}
}
