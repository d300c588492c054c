package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// sumOwner sums the gradients of some weights: see sums.go.
type sumOwner interface {
	// add adds dyᵀ·x of a pass to the gradient of a layer's weight.
	add(p phase, l *linear, s *linearState)
}

// biasOwner sums the gradients of biases: it adds dyᵀ·x for rows of whole sequences.
type biasOwner interface {
	addRows(p phase, w *weight, dy, x tensor.Tensor)
}

// weight is the weight of a layer: one parameter, or several adjacent ones as one tensor (gate and
// up projection as one; all local experts as one).
type weight struct {
	W      tensor.Tensor // [N, K], or [groups, N, K]
	Grad   tensor.Tensor // FP32
	at     int           // its offset in the flat vectors of its group
	owner  sumOwner      // sums what each pass adds
	shared bool          // ranks share Grad
	rows   [2]int        // the rows [lo, hi) of Grad that this rank computes: all, unless it is shared
	shares [][2]int      // rows of all ranks that share it
	unit   int           // rows that only one rank computes, together; 0: of no importance
	// Grad's rows that this rank computes, as a sum over the passes of a step. What Grad holds from
	// an earlier step is overwritten.
	passes sumTree
	chain  bool // passes are added one after the other: their products go on where the last one ended
}

// nextGrad returns where a pass puts its gradient of the rows that this rank computes, and whether
// it adds it there. pushGrad completes it. A stored product has the bits that adding it to zeros
// would give, except for the sign of zeros: a sum of negative products that underflow is -0.
func (w *weight) nextGrad(p phase) (to tensor.Tensor, adds bool) {
	return w.passes.next(p.ex, p.size(), w.chain || p.completes())
}

// addGrad is nextGrad for callers that can only add.
func (w *weight) addGrad(p phase) tensor.Tensor {
	to, adds := w.nextGrad(p)
	if !adds {
		tensor.Zero(p.ex, to)
	}
	return to
}

// pushGrad completes what a pass adds to the gradient of a weight. Each pass does so for every
// weight, except for those of experts, in the order of the passes.
func (p phase) pushGrad(w *weight) {
	w.passes.push(p.ex, w.chain || p.completes())
}

// nextRows is nextGrad for some of this rank's rows. The others are zeros.
func (w *weight) nextRows(p phase, rows [2]int) (to tensor.Tensor, adds bool) {
	to, adds = w.nextGrad(p)
	if rows == w.rows {
		return to, adds
	}
	if !adds {
		tensor.Zero(p.ex, to)
	}
	return to.Slice(rows[0]-w.rows[0], rows[1]-w.rows[0]), adds
}

// gradientTree returns a tree for some of this rank's rows of the gradient of a pass. The others
// are zeros.
func (w *weight) gradientTree(p phase, own [2]int, leaves int, fused bool) gradientTree {
	to, adds := w.nextRows(p, own)
	return newGradientTree(p.ex, to, adds, leaves, fused)
}

// own returns the rows of Grad that this rank computes: [rows, K].
func (w *weight) own() tensor.Tensor {
	if !w.shared {
		return w.Grad
	}
	return w.gradRows(w.rows)
}

// gradRows returns some rows of Grad.
func (w *weight) gradRows(rows [2]int) tensor.Tensor {
	m := w.Grad.Mat()
	return w.Grad.Reshape(m.Rows, m.Cols).Slice(rows[0], rows[1])
}

// rowsOf returns the rows of Grad that some ranks compute, which are adjacent.
func (w *weight) rowsOf(ranks []int) (rows [2]int) {
	for _, rank := range ranks {
		if share := w.shares[rank]; rows[0] == rows[1] {
			rows = share
		} else if share[0] < share[1] {
			rows[1] = share[1]
		}
	}
	return rows
}

// byGroups views rows of the gradient of a weight of groups as [groups, N, K].
func (w *weight) byGroups(rows tensor.Tensor) tensor.Tensor {
	n, k := w.W.Dim(-2), w.W.Dim(-1)
	return rows.Reshape(rows.Len()/(n*k), n, k)
}

// ownRows returns the number of rows whose gradient this rank computes.
func (w *weight) ownRows() int { return w.rows[1] - w.rows[0] }

// linear is a linear layer, y = x·W[g]ᵀ for the rows x of each group g (grouped GEMM), or for all
// rows, plus a bias if there is one.
//
// Its three products are forward y = x·W[g]ᵀ, backwardInput dx = dy·W[g] (I), and backwardWeight
// dW[g] += dyᵀ·x (W).
type linear struct {
	weight
	part Part
	bias *weight   // [N, 1] FP32 in every precision; nil: none
	mx   *mxLinear // nil: no product is quantized, and all run in the type of W
	sum  mx.Sum    // of products that are not quantized

	columns columnDivider // nil: this rank computes its products alone
}

// columnDivider computes the products of a layer together with other ranks.
type columnDivider interface {
	forward(p phase, l *linear, y tensor.Tensor, x *activation)
	backward(p phase, l *linear, dx tensor.Tensor, dy *activation)
}

// divided reports whether ranks divide the products of a pass with input x.
func (l *linear) divided(p phase, x *activation) bool {
	return l.columns != nil && p.cp != nil && x.ends == nil
}

// forward returns y = x·W[g]ᵀ in x's type, [rows, N], in the arena to.
func (l *linear) forward(p phase, to *tensor.Arena, x *activation, s *linearState) tensor.Tensor {
	s.x = x
	p.in(l.part)
	l.mx.quantizeInput(p, x)
	y := to.New(x.DType(), x.Dim(0), l.W.Dim(-2))
	switch {
	case l.divided(p, x):
		l.columns.forward(p, l, y, x)
	case l.mx.quantizesForward():
		l.mx.forward(p.ex, y.Mat(), x)
	default:
		l.multiply(p.ex, y.Mat(), x)
	}
	if l.bias != nil {
		tensor.Add(p.ex, y.Mat(), y.Mat(), l.bias.W.Broadcast(y.Dim(0)))
	}
	return y
}

// multiply is forward for a weight that is not quantized.
func (l *linear) multiply(ex *tensor.Exec, y tensor.Matrix, x *activation) {
	if x.ends == nil {
		l.sum.Multiply(ex, y, x.Mat(), l.W.Mat().T())
	} else {
		l.sum.MultiplyGroups(ex, y, x.Mat(), l.W, x.ends)
	}
}

// backward returns the gradient of x, dx = dy·W[g], in the arena to. A fused phase also adds the
// weight's gradient while dy is in the caches. Otherwise backwardWeight does so later, from s.
func (l *linear) backward(p phase, to *tensor.Arena, dy activation, s *linearState) tensor.Tensor {
	p.in(l.part)
	dx := like(to, s.x.Tensor)
	defer p.ex.Release(l.gradient(p, dy, s))
	if l.divided(p, &s.dy) {
		l.columns.backward(p, l, dx, &s.dy)
	} else {
		l.backwardInput(p.ex, dx.Mat(), &s.dy)
	}
	return dx
}

// backwardDetached is backward for a detached input, which gets no gradient.
func (l *linear) backwardDetached(p phase, dy activation, s *linearState) {
	p.in(l.part)
	p.ex.Release(l.gradient(p, dy, s))
}

// gradient is backward without dx. What it takes from the arena after the mark is for dx.
func (l *linear) gradient(p phase, dy activation, s *linearState) tensor.Mark {
	s.dy = dy
	s.dy.rowGroups = s.x.rowGroups
	if p.fused {
		l.mx.completeInput(p, s.x) // outside the mark: layers with the same input share it
		if l.shared && s.x.ends == nil {
			l.mx.reserveGradient(p, &s.dy) // it is read after the layer has returned
		}
	}
	mark := p.ex.Mark()
	l.mx.quantizeGradient(p, &s.dy)
	if p.fused {
		l.backwardWeight(p, s) // first, so that the next layer finds dx in the caches
	}
	return mark
}

// backwardInput sets dx = dy·W[g].
func (l *linear) backwardInput(ex *tensor.Exec, dx tensor.Matrix, dy *activation) {
	switch {
	case l.mx.quantizesDgrad():
		l.mx.dgrad(ex, dx, dy)
	case dy.ends == nil:
		l.sum.Multiply(ex, dx, dy.Mat(), l.W.Mat())
	default:
		l.sum.MultiplyGroupsDgrad(ex, dx, dy.Mat(), l.W, dy.ends)
	}
}

// backwardWeight adds dyᵀ·x to W's gradient of this step, now or later: see sumOwner. The rows of a
// group have the same order for any number of ranks, that of the tokens of all ranks. Without
// groups, it sums sequence by sequence.
func (l *linear) backwardWeight(p phase, s *linearState) {
	if l.bias != nil {
		l.bias.addRows(p, s.dy.Tensor)
	}
	l.owner.add(p, l, s)
}

// addRows adds the sum of the rows of dy to the gradient of a bias in this step. It is the gradient
// of a weight for inputs of 1, and so has its order of sums.
func (w *weight) addRows(p phase, dy tensor.Tensor) {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	one, ones := p.ex.New(tensor.FP32, 1), p.ex.New(dy.DType(), dy.Dim(0), 1)
	if !p.ex.Dry() {
		one.F32()[0] = 1
	}
	tensor.Convert(p.ex, ones.Mat(), one.Broadcast(dy.Dim(0)))
	w.owner.(biasOwner).addRows(p, w, dy, ones)
}

// wgrad adds dyᵀ·x to W's gradient: seq rows at a time, or by group.
func (l *linear) wgrad(p phase, dy, x *activation, seq int) {
	to, adds := l.nextGrad(p)
	rows := [2]int{0, l.Grad.Mat().Rows}
	if l.shared {
		rows = l.rows
	}
	l.wgradRows(p, to, rows, dy, x, seq, adds)
}

// wgradRows computes some rows of the gradient in to, or adds them to it. If they are a part of one
// group's, dy and x have rows of that group only.
func (l *linear) wgradRows(p phase, to tensor.Tensor, rows [2]int, dy, x *activation, seq int, adds bool) {
	height := l.W.Dim(-2)
	n, first := rows[1]-rows[0], rows[0]%height
	switch quantized := l.mx.quantizesWgrad(); {
	case quantized && x.ends == nil:
		l.mx.Sum.Wgrad(p.ex, to.Mat(), dy.cols, x.cols, l.mx.wholeBlocks(seq, dy.Dim(0)), adds)
	case quantized && n < height:
		if dy.Dim(0) > 0 {
			l.mx.Sum.WgradRows(p.ex, to.Mat(), dy.cols.Whole(), x.cols.Whole(), first, 0, adds)
		} else if !adds {
			tensor.Zero(p.ex, to)
		}
	case quantized:
		l.mx.Sum.GroupedWgrad(p.ex, l.byGroups(to), dy.cols, x.cols, adds)
	case x.ends == nil:
		l.sum.MultiplyWgrad(p.ex, to.Mat(), dy.Mat(), x.Mat(), seq, adds)
	case n < height:
		part := dy.Mat().ColSlice(first, first+n)
		l.sum.MultiplyGroupsWgrad(p.ex, to.Reshape(1, n, l.W.Dim(-1)), part, x.Mat(), x.ends, adds)
	default:
		l.sum.MultiplyGroupsWgrad(p.ex, l.byGroups(to), dy.Mat(), x.Mat(), x.ends, adds)
	}
}
