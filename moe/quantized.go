package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// quantizesForward, quantizesDgrad and quantizesWgrad report which products have quantized
// operands. A layer without a recipe has none.
func (q *mxLinear) quantizesForward() bool { return q != nil && q.Forward.Quantizes() }
func (q *mxLinear) quantizesDgrad() bool   { return q != nil && q.Dgrad.Quantizes() }
func (q *mxLinear) quantizesWgrad() bool   { return q != nil && q.Wgrad.Quantizes() }

// forward computes y = x·wᵀ.
func (q *mxLinear) forward(ex *tensor.Exec, y tensor.Matrix, x *activation) {
	if x.ends == nil {
		q.Sum.MatMul(ex, y, x.rows, q.rows)
	} else {
		q.Sum.GroupedMatMul(ex, y, x.rows, q.rows, x.ends)
	}
}

// dgrad computes dx = dy·w.
func (q *mxLinear) dgrad(ex *tensor.Exec, dx tensor.Matrix, dy *activation) {
	if dy.ends == nil {
		q.Sum.Dgrad(ex, dx, dy.rows, q.cols.Group(0))
	} else {
		q.Sum.GroupedDgrad(ex, dx, dy.rows, q.cols, dy.ends)
	}
}

// wholeBlocks returns the number of rows that one product sums: a sequence, or all rows if blocks
// extend from one sequence into the next.
func (q *mxLinear) wholeBlocks(seq, rows int) int {
	if seq%q.Wgrad.Left.Format.Block[1] != 0 || seq%q.Wgrad.Right.Format.Block[1] != 0 {
		return max(rows, 1)
	}
	return seq
}

// quantizeInput quantizes the input for the forward product and, if this phase does so, for wgrad.
// It does nothing if another layer with the same input has done so.
func (q *mxLinear) quantizeInput(p phase, x *activation) {
	if q == nil {
		return
	}
	if x.shown != nil {
		return // layers with the same input have the same recipe
	}
	x.shown = q
	if q.quantizesWgrad() && p.quantizesForWgrad() && !p.defersWgrad(x.ends) {
		x.cols = along(mx.AlongCols, p.cheap, q.Wgrad.Right, x)
	}
	received := q.quantize(p, Input, x, q.Forward.Left, q.Wgrad.Right)
	q.show(Quantized{Operand: Input, X: x.Mat(), Rows: x.rows, Cols: x.cols, Ends: x.ends, Received: received, Again: p.recomputing})
}

// quantizeGradient quantizes the gradient of the output for dgrad and wgrad.
func (q *mxLinear) quantizeGradient(p phase, dy *activation) {
	if q == nil {
		return
	}
	q.reserveGradient(p, dy)
	received := q.quantize(p, Gradient, dy, q.Dgrad.Left, q.Wgrad.Left)
	q.show(Quantized{Operand: Gradient, X: dy.Mat(), Rows: dy.rows, Cols: dy.cols, Ends: dy.ends, Received: received})
}

// reserveGradient allocates memory for the codes of the gradient of the output that wgrad reads.
func (q *mxLinear) reserveGradient(p phase, dy *activation) {
	if q.quantizesWgrad() && !p.defersWgrad(dy.ends) && !dy.cols.Codes.Valid() {
		dy.cols = along(mx.AlongCols, p.saved, q.Wgrad.Left, dy)
	}
}

// completeInput quantizes the input along its columns, if wgrad needs that and the forward pass has
// left it out.
func (q *mxLinear) completeInput(p phase, x *activation) {
	if !q.quantizesWgrad() || p.defersWgrad(x.ends) || x.cols.Codes.Valid() {
		return
	}
	p.ex.Profile.SetRecompute(true)
	defer p.ex.Profile.SetRecompute(false)
	if x.shown == nil { // the forward product is not recomputed
		x.shown = q
	}
	x.cols = along(mx.AlongCols, p.saved, q.Wgrad.Right, x)
	x.shown.fill(p, Input, x, mx.Tensor{}, mx.Cast{}, q.Wgrad.Right)
	x.shown.show(Quantized{Operand: Input, X: x.Mat(), Cols: x.cols, Ends: x.ends, Again: true})
}

// quantizeDeferred quantizes rows of several passes along their columns, so that their blocks are
// as full as possible. They are all rows of their experts.
func (q *mxLinear) quantizeDeferred(p phase, o Operand, by mx.Cast, a *activation) {
	a.cols = along(mx.AlongCols, &p.ex.Arena, by, a)
	by.Quantize(p.ex, a.cols, a.Mat(), q.draws(p, o, mx.AlongCols, by, a))
	q.show(Quantized{Operand: o, X: a.Mat(), Cols: a.cols, Ends: a.ends, Again: true})
}

// quantize quantizes a along its rows, in the arena of the phase's Exec, and fills its codes along
// columns if they have memory. Rows that were received as codes of the right format keep these; it
// then returns true.
func (q *mxLinear) quantize(p phase, o Operand, a *activation, byRows, byCols mx.Cast) (received bool) {
	rows := mx.Tensor{}
	received = a.rows.Codes.Valid() && a.rows.Format == byRows.Format && byRows.Rounding == mx.Nearest
	if !received && byRows.Quantizes() {
		a.rows = along(mx.AlongRows, &p.ex.Arena, byRows, a)
		rows = a.rows
	}
	q.fill(p, o, a, rows, byRows, byCols)
	return received
}

// fill fills rows and the codes of a along its columns. Either may be the zero Tensor.
func (q *mxLinear) fill(p phase, o Operand, a *activation, rows mx.Tensor, byRows, byCols mx.Cast) {
	q.findAmax(p, a.Mat(), rows, a.cols)
	alongRows := form{rows, byRows, q.draws(p, o, mx.AlongRows, byRows, a)}
	quantizeBoth(p.ex, a.Mat(), alongRows, form{a.cols, byCols, q.draws(p, o, mx.AlongCols, byCols, a)})
}

// form is one of the quantized forms of a matrix. Its largest magnitudes are set.
type form struct {
	mx.Tensor // the zero Tensor: no product needs this form
	by        mx.Cast
	draws     mx.Draws
}

// quantizeBoth fills both forms of x, in one pass over x if possible.
func quantizeBoth(ex *tensor.Exec, x tensor.Matrix, rows, cols form) {
	if rows.Codes.Valid() && cols.Codes.Valid() && rows.by == cols.by && mx.OnePass(rows.Format, cols.Format) && rows.by.Rounding == mx.Nearest {
		mx.QuantizeBoth(ex, rows.Tensor, cols.Tensor, x, rows.by.Mode)
		return
	}
	for _, f := range [...]form{rows, cols} {
		if f.Codes.Valid() {
			f.by.Encode(ex, f.Tensor, x, f.draws)
		}
	}
}

// refresh quantizes the weight: [N, K] or [groups, N, K].
func (q *mxLinear) refresh(ex *tensor.Exec, w tensor.Tensor) {
	cols := q.cols
	if q.sharesWeight() {
		cols = mx.Tensor{} // it is rows
	}
	findAmax(ex, w.Mat(), q.rows, cols)
	draws := func(d mx.Direction) mx.Draws {
		return mx.Draws{Stream: q.stream(Weight, d), First: uint64(q.firstExpert * w.Dim(-2))}
	}
	quantizeBoth(ex, w.Mat(), form{q.rows, q.Forward.Right, draws(mx.AlongRows)}, form{cols, q.Dgrad.Right, draws(mx.AlongCols)})
	q.showWeight(w, false)
}

func (q *mxLinear) showWeight(w tensor.Tensor, elsewhere bool) {
	q.show(Quantized{Operand: Weight, X: w.Mat(), Rows: q.rows, Cols: q.cols, Ends: q.cols.Ends, Elsewhere: elsewhere})
}

// updateWork quantizes rows of the weight while update computes them: see mx.QuantizePanels. It is
// for training only. It writes the weight itself only if a product or an observer reads it, or if
// quantization takes more than one pass.
func (q *mxLinear) updateWork(ex *tensor.Exec, w tensor.Tensor, update func(ex *tensor.Exec, lo, hi int, part tensor.Tensor)) {
	if q.watched() || q.readsWeight() || q.Forward.Right != q.Dgrad.Right || q.Forward.Right.Rounding != mx.Nearest || !mx.OnePass(q.rows.Format, q.cols.Format) {
		update(ex, 0, w.Mat().Rows, w)
		q.refresh(ex, w)
		return
	}
	mx.QuantizePanels(ex, q.rows, q.cols, w.DType(), q.Forward.Right.Mode, update)
}

// allocate allocates memory for the quantized forms of the weight, in an arena. Nil means memory of
// their own.
func (q *mxLinear) allocate(to *tensor.Arena, w tensor.Tensor) {
	groups := 1
	if w.NDim() == 3 {
		groups = w.Dim(0)
	}
	m := w.Mat()
	ends := mx.EqualGroups(groups, m.Rows/groups)
	if q.Forward.Quantizes() {
		q.rows = mx.NewGroupedIn(to, q.Forward.Right.Format, mx.AlongRows, m.Cols, ends)
	}
	switch {
	case q.inference || !q.Dgrad.Quantizes():
	case q.sharesWeight():
		q.cols = q.rows.WithBlocks(mx.AlongCols)
	default:
		q.cols = mx.NewGroupedIn(to, q.Dgrad.Right.Format, mx.AlongCols, m.Cols, ends)
	}
}

// quantizedParts is the number of tensors of the quantized forms of a weight.
const quantizedParts = 6

// weights returns the tensors that products read instead of w or, if readsWeight, in addition to
// it. Some may be the zero Tensor.
func (q *mxLinear) weights(w tensor.Tensor) (all [quantizedParts + 1]tensor.Tensor) {
	all[0], all[1], all[2] = q.rows.Codes, q.rows.Scales, q.rows.Amax
	if !q.sharesWeight() {
		all[3], all[4], all[5] = q.cols.Codes, q.cols.Scales, q.cols.Amax
	}
	if q.readsWeight() {
		all[quantizedParts] = w.Reshape(w.Len())
	}
	return all
}

// along allocates codes of a, separate for each group of rows.
func along(d mx.Direction, to *tensor.Arena, by mx.Cast, a *activation) mx.Tensor {
	if a.ends == nil {
		return mx.NewIn(to, by.Format, d, a.Dim(0), a.Dim(1))
	}
	return mx.NewGroupedIn(to, by.Format, d, a.Dim(1), a.ends)
}
