package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// quantised is the MX form of a linear layer: its weight quantised in both directions once a
// step, and its input once a forward pass, in both directions if a backward pass follows.
type quantised struct {
	MX
	groups     int
	rows, cols mx.Tensor // of the weight, [groups·N, K]: for the forward product and for dgrad

	own    quantisedInput
	shared *quantised // the layer whose input is also that of this one; nil: none
}

// quantisedInput is the last input of a layer.
type quantisedInput struct {
	rows mx.Tensor // blocks along its rows: for the forward product
	cols mx.Tensor // blocks along its columns: for wgrad
}

// input returns the last input, which another layer may hold.
func (q *quantised) input() *quantisedInput {
	if q.shared != nil {
		return &q.shared.own
	}
	return &q.own
}

// refresh quantises the weight: [N, K] or [groups, N, K].
func (q *quantised) refresh(ex *tensor.Exec, w tensor.Tensor) {
	m := w.Mat()
	if !q.rows.Codes.Valid() {
		if q.groups = 1; w.NDim() == 3 {
			q.groups = w.Dim(0)
		}
		q.rows = mx.New(nil, q.Format, mx.AlongRows, m.Rows, m.Cols)
		q.cols = mx.NewGrouped(nil, q.Format, m.Cols, mx.GroupsOf(q.groups, m.Rows/q.groups))
	}
	mx.QuantizeBoth(ex, q.rows, q.cols, m, q.Scale)
}

func (q *quantised) forward(ex *tensor.Exec, y, x tensor.Matrix, ends []int32, train bool) {
	if q.shared == nil {
		q.keep(ex, x, ends, train)
	}
	if rows := q.input().rows; ends == nil {
		mx.MatMul(ex, y, rows, q.rows)
	} else {
		mx.GroupedMatMul(ex, y, rows, q.rows, ends)
	}
}

// keep quantises the input.
func (q *quantised) keep(ex *tensor.Exec, x tensor.Matrix, ends []int32, train bool) {
	in := &q.own
	in.rows = mx.New(ex, q.Format, mx.AlongRows, x.Rows, x.Cols)
	if !train || q.HighWgrad {
		mx.Quantize(ex, in.rows, x, q.Scale)
		return
	}
	in.cols = alongCols(ex, q.Format, x, ends)
	mx.QuantizeBoth(ex, in.rows, in.cols, x, q.Scale)
}

func (q *quantised) backward(ex *tensor.Exec, dx tensor.Matrix, dw tensor.Tensor, dy, x tensor.Matrix, ends []int32) {
	mark := ex.Mark()
	defer ex.Release(mark)
	rows := mx.New(ex, q.Gradient, mx.AlongRows, dy.Rows, dy.Cols)
	if q.HighWgrad {
		mx.Quantize(ex, rows, dy, q.Scale)
		if ends == nil {
			tensor.MatMulAdd(ex, dw.Mat(), dy.T(), x)
		} else {
			tensor.GroupedWgrad(ex, dw, dy, x, ends)
		}
	} else {
		cols := alongCols(ex, q.Gradient, dy, ends)
		mx.QuantizeBoth(ex, rows, cols, dy, q.Scale)
		if ends == nil {
			mx.Wgrad(ex, dw.Mat(), cols, q.input().cols)
		} else {
			mx.GroupedWgrad(ex, dw, cols, q.input().cols)
		}
	}
	if ends == nil {
		mx.Dgrad(ex, dx, rows, q.cols.Group(0))
	} else {
		mx.GroupedDgrad(ex, dx, rows, q.cols, ends)
	}
}

// alongCols returns room for x quantised along its columns, each group of rows for itself.
func alongCols(ex *tensor.Exec, f mx.Format, x tensor.Matrix, ends []int32) mx.Tensor {
	if ends == nil {
		return mx.New(ex, f, mx.AlongCols, x.Rows, x.Cols)
	}
	return mx.NewGrouped(ex, f, x.Cols, ends)
}
