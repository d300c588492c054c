package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// mxLinear is the MX form of a linear layer: its weight quantised in both directions once a
// step, and its input once a forward pass, in both directions if a backward pass follows that does not quantise it itself.
type mxLinear struct {
	MX
	identity   identity
	operands   *operands // shows them to the model's observer; nil: nobody watches
	inference  bool      // there is no backward pass
	groups     int
	rows, cols mx.Tensor // of the weight, [groups·N, K]: for the forward product, and for dgrad if there is one

	own    quantisedInput
	shared *mxLinear // the layer whose input is also that of this one; nil: none

	taken struct{ input, gradient mx.Tensor } // quantised elsewhere, for the next product; zero: none
}

// quantisedInput is the last input of a layer.
type quantisedInput struct {
	rows mx.Tensor // blocks along its rows: for the forward product
	cols mx.Tensor // blocks along its columns: for wgrad
}

// input returns the last input, which another layer may hold.
func (q *mxLinear) input() *quantisedInput {
	if q.shared != nil {
		return &q.shared.own
	}
	return &q.own
}

// takeInput gives the codes of the next input, blocks along rows: it is not quantised again. Codes of another format are left alone, as
// are all if the layer is not quantised.
func (q *mxLinear) takeInput(codes mx.Tensor) {
	if q.takesInput(codes) {
		q.taken.input = codes
	}
}

func (q *mxLinear) takesInput(codes mx.Tensor) bool {
	return q != nil && codes.Codes.Valid() && codes.Format == q.Format
}

// takeGradient is takeInput for the gradient of the output.
func (q *mxLinear) takeGradient(codes mx.Tensor) {
	if q.takesGradient(codes) {
		q.taken.gradient = codes
	}
}

func (q *mxLinear) takesGradient(codes mx.Tensor) bool {
	return q != nil && codes.Codes.Valid() && codes.Format == q.Gradient
}

// quantise returns x with blocks along its rows, the codes taken for it if there are any, and sets cols too unless that is the zero Tensor.
func (q *mxLinear) quantise(ex *tensor.Exec, f mx.Format, taken *mx.Tensor, cols mx.Tensor, x tensor.Matrix) mx.Tensor {
	rows, both := *taken, cols.Codes.Valid()
	*taken = mx.Tensor{}
	if rows.Codes.Valid() {
		if both {
			mx.Quantize(ex, cols, x, q.Scale)
		}
		return rows
	}
	rows = mx.New(ex, f, mx.AlongRows, x.Rows, x.Cols)
	if both {
		mx.QuantizeBoth(ex, rows, cols, x, q.Scale)
	} else {
		mx.Quantize(ex, rows, x, q.Scale)
	}
	return rows
}

// refresh quantises the weight: [N, K] or [groups, N, K].
func (q *mxLinear) refresh(ex *tensor.Exec, w tensor.Tensor) {
	m := w.Mat()
	q.room(w)
	if q.inference {
		mx.Quantize(ex, q.rows, m, q.Scale)
	} else {
		mx.QuantizeBoth(ex, q.rows, q.cols, m, q.Scale)
	}
	q.show(Quantised{Operand: Weight, X: m, Rows: q.rows, Cols: q.cols, Ends: q.cols.Ends})
}

// renew quantises rows of the weight while update makes them: see mx.QuantizeAsWritten. There has to be a backward pass. Only who watches
// has the weight written as well.
func (q *mxLinear) renew(ex *tensor.Exec, w tensor.Tensor, update func(ex *tensor.Exec, lo, hi int, part tensor.Tensor)) {
	if q.watched() {
		update(ex, 0, w.Mat().Rows, w)
		q.refresh(ex, w)
		return
	}
	q.room(w)
	mx.QuantizeAsWritten(ex, q.rows, q.cols, w.DType(), q.Scale, update)
}

// room takes memory for what the weight is quantised to.
func (q *mxLinear) room(w tensor.Tensor) {
	if q.rows.Codes.Valid() {
		return
	}
	if q.groups = 1; w.NDim() == 3 {
		q.groups = w.Dim(0)
	}
	m := w.Mat()
	q.rows = mx.New(nil, q.Format, mx.AlongRows, m.Rows, m.Cols)
	if !q.inference {
		q.cols = mx.NewGrouped(nil, q.Format, m.Cols, mx.GroupsOf(q.groups, m.Rows/q.groups))
	}
}

func (q *mxLinear) forward(p *pass, y, x tensor.Matrix, ends []int32) {
	ex := p.ex
	if q.shared == nil {
		q.keep(p, x, ends)
	}
	if rows := q.input().rows; ends == nil {
		mx.MatMul(ex, y, rows, q.rows)
	} else {
		mx.GroupedMatMul(ex, y, rows, q.rows, ends)
	}
}

// keep quantises the input.
func (q *mxLinear) keep(p *pass, x tensor.Matrix, ends []int32) {
	defer p.brief(p.brief(true))
	ex := p.ex
	q.own.cols = mx.Tensor{}
	if p.train && !q.HighWgrad && !p.lean() && !p.gathers(ends) {
		q.own.cols = alongCols(ex, q.Format, x, ends)
	}
	received := q.taken.input.Codes.Valid()
	q.own.rows = q.quantise(ex, q.Format, &q.taken.input, q.own.cols, x)
	q.show(Quantised{Operand: Input, X: x, Rows: q.own.rows, Cols: q.own.cols, Ends: ends, Received: received, Again: p.again})
}

// complete quantises the input along its columns, if wgrad wants that and the forward pass has left it out.
func (q *mxLinear) complete(p *pass, x tensor.Matrix, ends []int32) {
	in := q.input()
	if q.HighWgrad || p.gathers(ends) || in.cols.Codes.Valid() {
		return
	}
	defer p.redo(p.redo(true))
	in.cols = alongCols(p.ex, q.Format, x, ends)
	mx.Quantize(p.ex, in.cols, x, q.Scale)
	q.show(Quantised{Operand: Input, X: x, Cols: in.cols, Ends: ends, Again: true})
}

func (q *mxLinear) backward(p *pass, dx tensor.Matrix, w *weight, dy, x tensor.Matrix, ends []int32) {
	ex := p.ex
	q.complete(p, x, ends)
	mark := ex.Mark()
	defer ex.Release(mark)
	var cols mx.Tensor
	if !q.HighWgrad && !p.gathers(ends) {
		cols = alongCols(ex, q.Gradient, dy, ends)
	}
	received := q.taken.gradient.Codes.Valid()
	rows := q.quantise(ex, q.Gradient, &q.taken.gradient, cols, dy)
	q.show(Quantised{Operand: Gradient, X: dy, Rows: rows, Cols: cols, Ends: ends, Received: received})
	switch {
	case p.gathers(ends):
	case q.HighWgrad && ends == nil:
		tensor.Wgrad(ex, w.Grad.Mat(), dy, x, p.batch.Seq, w.accumulate())
	case q.HighWgrad:
		tensor.GroupedWgrad(ex, w.Grad, dy, x, ends, w.accumulate())
	case ends == nil:
		mx.WgradSpans(ex, w.Grad.Mat(), cols, q.input().cols, wholeBlocks(p.batch.Seq, dy.Rows), w.accumulate())
	default:
		mx.GroupedWgrad(ex, w.Grad, cols, q.input().cols, w.accumulate())
	}
	if ends == nil {
		mx.Dgrad(ex, dx, rows, q.cols.Group(0))
	} else {
		mx.GroupedDgrad(ex, dx, rows, q.cols, ends)
	}
}

// wgrad makes the gradient of w from rows that were gathered, which are quantised now: so their blocks are as full as they can be.
func (q *mxLinear) wgrad(ex *tensor.Exec, w *weight, rows wgradRows) {
	quantised := func(o Operand, f mx.Format, x tensor.Tensor) mx.Tensor {
		cols := mx.NewGrouped(ex, f, x.Dim(1), rows.ends)
		mx.Quantize(ex, cols, x.Mat(), q.Scale)
		q.show(Quantised{Operand: o, X: x.Mat(), Cols: cols, Ends: rows.ends, Again: true})
		return cols
	}
	dy, x := quantised(Gradient, q.Gradient, rows.dy), quantised(Input, q.Format, rows.x)
	mx.GroupedWgrad(ex, w.Grad, dy, x, w.accumulate())
}

// wholeBlocks returns the rows that may be summed for themselves: a sequence, or all where blocks reach from one into the next.
func wholeBlocks(seq, rows int) int {
	if seq%mx.BlockSize != 0 {
		return max(rows, 1)
	}
	return seq
}

// alongCols returns room for x quantised along its columns, each group of rows for itself.
func alongCols(ex *tensor.Exec, f mx.Format, x tensor.Matrix, ends []int32) mx.Tensor {
	if ends == nil {
		return mx.New(ex, f, mx.AlongCols, x.Rows, x.Cols)
	}
	return mx.NewGrouped(ex, f, x.Cols, ends)
}
