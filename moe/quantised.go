package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// quantised is the MX form of a linear layer: its weight quantised in both directions once a
// step, and its input quantised in both directions once a forward pass.
type quantised struct {
	MX
	groups     int
	rows, cols mx.Tensor // of the weight, [groups·N, K]: for the forward product and for dgrad

	x mx.Tensor // the last input, blocks along its columns: for wgrad
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

func (q *quantised) forward(ex *tensor.Exec, y, x tensor.Matrix, ends []int32) {
	rows := mx.New(ex, q.Format, mx.AlongRows, x.Rows, x.Cols)
	if q.HighWgrad {
		mx.Quantize(ex, rows, x, q.Scale)
	} else {
		q.x = alongCols(ex, q.Format, x, ends)
		mx.QuantizeBoth(ex, rows, q.x, x, q.Scale)
	}
	if ends == nil {
		mx.MatMul(ex, y, rows, q.rows)
	} else {
		mx.GroupedMatMul(ex, y, rows, q.rows, ends)
	}
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
			mx.Wgrad(ex, dw.Mat(), cols, q.x)
		} else {
			mx.GroupedWgrad(ex, dw, cols, q.x)
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
