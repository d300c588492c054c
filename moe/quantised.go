package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// mxLinear is the MX form of a linear layer: its weight, quantised in both directions once per step. Inputs and gradients
// are quantised once per pass, in both directions where wgrad multiplies them quantised too; what they are quantised to
// lies in their activation.
type mxLinear struct {
	MX
	identity   identity
	operands   *operands // shows them to the model's observer; nil: there is none
	inference  bool      // there is no backward pass
	groups     int
	rows, cols mx.Tensor // of the weight, [groups·N, K]: for the forward product, and for dgrad if there is one
}

// forward computes y = x·wᵀ.
func (q *mxLinear) forward(p phase, y tensor.Matrix, x *activation) {
	q.quantiseInput(p, x)
	if x.ends == nil {
		mx.MatMul(p.ex, y, x.rows, q.rows)
	} else {
		mx.GroupedMatMul(p.ex, y, x.rows, q.rows, x.ends)
	}
}

// backwardInput computes dx = dy·w. It quantises dy along its columns as well if wgrad wants that.
func (q *mxLinear) backwardInput(p phase, dx tensor.Matrix, dy *activation) {
	if q.quantisesWgrad() && !p.gathers(dy.ends) {
		dy.cols = alongCols(p.kept, q.Gradient, dy)
	}
	received := q.quantise(p.ex, q.Gradient, dy)
	q.show(Quantised{Operand: Gradient, X: dy.Mat(), Rows: dy.rows, Cols: dy.cols, Ends: dy.ends, Received: received})
	if dy.ends == nil {
		mx.Dgrad(p.ex, dx, dy.rows, q.cols.Group(0))
	} else {
		mx.GroupedDgrad(p.ex, dx, dy.rows, q.cols, dy.ends)
	}
}

// quantisesWgrad says whether the weight's gradient is a product of quantised operands.
func (q *mxLinear) quantisesWgrad() bool { return q != nil && !q.HighWgrad }

// wgrad adds dyᵀ·x to the gradient of w; both are quantised along their columns.
func (q *mxLinear) wgrad(ex *tensor.Exec, w *weight, dy, x *activation, seq int) {
	if x.ends == nil {
		mx.WgradSpans(ex, w.Grad.Mat(), dy.cols, x.cols, wholeBlocks(seq, dy.Dim(0)), w.accumulate())
	} else {
		mx.GroupedWgrad(ex, w.Grad, dy.cols, x.cols, w.accumulate())
	}
}

// quantiseInput quantises the input of the forward product, unless another layer with the same input has.
func (q *mxLinear) quantiseInput(p phase, x *activation) {
	if x.shown != nil {
		if x.shown.MX != q.MX {
			panic("moe: layers that share an input quantise it differently")
		}
		return
	}
	x.shown = q
	if q.quantisesWgrad() && p.quantisesForWgrad() && !p.gathers(x.ends) {
		x.cols = alongCols(p.cheap, q.Format, x)
	}
	received := q.quantise(p.ex, q.Format, x)
	q.show(Quantised{Operand: Input, X: x.Mat(), Rows: x.rows, Cols: x.cols, Ends: x.ends, Received: received, Again: p.again})
}

// completeInput quantises the input along its columns, if wgrad wants that and the forward pass has left it out.
func (q *mxLinear) completeInput(p phase, x *activation) {
	if !q.quantisesWgrad() || p.gathers(x.ends) || x.cols.Codes.Valid() {
		return
	}
	p.ex.Profile.Again(true)
	defer p.ex.Profile.Again(false)
	x.cols = alongCols(p.kept, q.Format, x)
	mx.Quantize(p.ex, x.cols, x.Mat(), q.Scale)
	if x.shown == nil { // its forward product is not made again
		x.shown = q
	}
	x.shown.show(Quantised{Operand: Input, X: x.Mat(), Cols: x.cols, Ends: x.ends, Again: true})
}

// quantiseGathered quantises rows of several passes along their columns: so their blocks are as full as they can be.
func (q *mxLinear) quantiseGathered(ex *tensor.Exec, o Operand, f mx.Format, a *activation) {
	a.cols = alongCols(&ex.Arena, f, a)
	mx.Quantize(ex, a.cols, a.Mat(), q.Scale)
	q.show(Quantised{Operand: o, X: a.Mat(), Cols: a.cols, Ends: a.ends, Again: true})
}

// quantise sets the codes of a along its rows, in the arena of ex, and fills those along its columns if there is room for
// them. Rows that came as codes of this format keep these: it then returns true.
func (q *mxLinear) quantise(ex *tensor.Exec, f mx.Format, a *activation) (received bool) {
	received = q.takes(a.rows, f)
	if !received {
		a.rows = mx.New(ex, f, mx.AlongRows, a.Dim(0), a.Dim(1))
	}
	switch wantsCols := a.cols.Codes.Valid(); {
	case received && wantsCols:
		mx.Quantize(ex, a.cols, a.Mat(), q.Scale)
	case received:
	case wantsCols:
		mx.QuantizeBoth(ex, a.rows, a.cols, a.Mat(), q.Scale)
	default:
		mx.Quantize(ex, a.rows, a.Mat(), q.Scale)
	}
	return received
}

// takes says whether codes that came with the rows are those that the layer would make.
func (q *mxLinear) takes(codes mx.Tensor, f mx.Format) bool {
	return q != nil && codes.Codes.Valid() && codes.Format == f
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

// renew quantises rows of the weight while update makes them: see mx.QuantizeAsWritten. There has to be a backward pass.
// The weight itself is written only if an observer sees it.
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

// wholeBlocks returns how many rows are summed on their own: a sequence, or all rows where blocks reach from one sequence
// into the next.
func wholeBlocks(seq, rows int) int {
	if seq%mx.BlockSize != 0 {
		return max(rows, 1)
	}
	return seq
}

// alongCols returns room for a quantised along its columns, each group of rows on its own.
func alongCols(to *tensor.Arena, f mx.Format, a *activation) mx.Tensor {
	if a.ends == nil {
		return mx.NewIn(to, f, mx.AlongCols, a.Dim(0), a.Dim(1))
	}
	return mx.NewGroupedIn(to, f, a.Dim(1), a.ends)
}
