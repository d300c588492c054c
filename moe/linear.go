package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// weight is the weight of a layer: one parameter, or several adjacent ones as one tensor (gate and
// up projection as one; all local experts as one).
type weight struct {
	W      tensor.Tensor // [N, K], or [groups, N, K]
	Grad   tensor.Tensor // FP32
	at     int           // its offset in the flat vectors of its group
	host   *host         // shares Grad; nil: it is this rank's own
	rows   [2]int        // the rows [lo, hi) of Grad that this rank computes: all, unless it is shared
	shares [][2]int      // rows of all ranks of host
	unit   int           // rows that only one rank computes, together; 0: of no importance
	// Grad's rows that this rank computes, as a sum over the passes of a step. What Grad holds from
	// an earlier step is overwritten.
	passes passTree
	chain  bool // passes are added one after the other: their products go on where the last one ended
}

// nextGrad returns where a pass puts its gradient of the rows that this rank computes, and whether
// it adds it there. pushGrad completes it. A stored product has the bits that adding it to zeros
// would give, except for the sign of zeros: a sum of negative products that underflow is -0.
func (w *weight) nextGrad(p phase) (to tensor.Tensor, adds bool) {
	return w.passes.next(p.ex, w.chain || p.completes())
}

// completes reports whether the sums over passes end with this pass: see passTree.next.
func (p phase) completes() bool { return !p.batch.More || p.model.ChainPasses }

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

// own returns the rows of Grad that this rank computes: [rows, K].
func (w *weight) own() tensor.Tensor {
	if w.host == nil {
		return w.Grad
	}
	m := w.Grad.Mat()
	return w.Grad.Reshape(m.Rows, m.Cols).Slice(w.rows[0], w.rows[1])
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
}

// forward returns y = x·W[g]ᵀ in x's type, [rows, N], in the arena to.
func (l *linear) forward(p phase, to *tensor.Arena, x *activation, s *linearState) tensor.Tensor {
	s.x = x
	p.in(l.part)
	l.mx.quantizeInput(p, x)
	y := to.New(x.DType(), x.Dim(0), l.W.Dim(-2))
	switch {
	case p.dividesColumns(l, x):
		l.forwardColumns(p, y, x)
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
	s.dy = dy
	s.dy.rowGroups = s.x.rowGroups
	p.in(l.part)
	dx := like(to, s.x.Tensor)
	if p.fused {
		l.mx.completeInput(p, s.x) // outside the mark: layers with the same input share it
		if l.host != nil && s.x.ends == nil {
			l.mx.reserveGradient(p, &s.dy) // it is read after the layer has returned
		}
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	l.mx.quantizeGradient(p, &s.dy)
	if p.fused {
		l.backwardWeight(p, s) // first, so that the next layer finds dx in the caches
	}
	if p.dividesColumns(l, &s.dy) {
		l.backwardColumns(p, dx, &s.dy)
	} else {
		l.backwardInput(p.ex, dx.Mat(), &s.dy)
	}
	return dx
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

// backwardWeight adds dyᵀ·x to W's gradient of this step. The rows of a group have the same order
// for any number of ranks, that of the tokens of all ranks. Without groups, it sums sequence by
// sequence. The gradient of groups may be deferred: see rowStore. If ranks share the gradient, they
// compute it later: see host.
func (l *linear) backwardWeight(p phase, s *linearState) {
	l.biasGradient(p, s.dy.Tensor)
	if p.defersWgrad(s.x.ends) {
		l.deferWgrad(p, s)
		return
	}
	l.mx.completeInput(p, s.x)
	switch {
	case l.host != nil:
		l.host.add(l, s)
		return
	case p.cp != nil && s.x.ends == nil:
		l.contextWgrad(p, s.dy.Tensor, s.x.Tensor)
		return
	}
	l.wgrad(p, &s.dy, s.x, p.batch.Seq)
	p.pushGrad(&l.weight)
}

// biasGradient adds the sum of the rows of dy to the bias's gradient of this step. It is the
// gradient of a weight for inputs of 1, and so has its order of sums.
func (l *linear) biasGradient(p phase, dy tensor.Tensor) {
	if l.bias == nil {
		return
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	one, ones := p.ex.New(tensor.FP32, 1), p.ex.New(dy.DType(), dy.Dim(0), 1)
	if !p.ex.Dry() {
		one.F32()[0] = 1
	}
	tensor.Convert(p.ex, ones.Mat(), one.Broadcast(dy.Dim(0)))
	if p.cp != nil {
		l.bias.contextWgrad(p, dy, ones)
		return
	}
	to, adds := l.bias.nextGrad(p)
	tensor.Wgrad(p.ex, to.Mat(), dy.Mat(), ones.Mat(), p.batch.Seq, adds)
	p.pushGrad(l.bias)
}

// wgrad adds dyᵀ·x to W's gradient: seq rows at a time, or by group.
func (l *linear) wgrad(p phase, dy, x *activation, seq int) {
	to, adds := l.nextGrad(p)
	switch quantized := l.mx.quantizesWgrad(); {
	case quantized && x.ends == nil:
		l.mx.Sum.Wgrad(p.ex, to.Mat(), dy.cols, x.cols, l.mx.wholeBlocks(seq, dy.Dim(0)), adds)
	case quantized:
		l.mx.Sum.GroupedWgrad(p.ex, l.byGroups(to), dy.cols, x.cols, adds)
	case x.ends == nil:
		l.sum.MultiplyWgrad(p.ex, to.Mat(), dy.Mat(), x.Mat(), seq, adds)
	default:
		l.sum.MultiplyGroupsWgrad(p.ex, l.byGroups(to), dy.Mat(), x.Mat(), x.ends, adds)
	}
}
