package moe

// The memory of a block, layer by layer. Each method has the name of the one that it counts.

import (
	"spmoe/collective/ep"
	"spmoe/tensor"
)

const fp32Bytes, int32Bytes = 4, 4

// norm is rmsNorm.forward of rows of n elements.
func (p *passSizes) norm(n int) {
	p.take(p.cheap, p.tokens*float64(n)*p.elem)
	p.take(p.saved, p.tokens*fp32Bytes)
}

// normBackward is rmsNorm.backward.
func (p *passSizes) normBackward(n int) {
	p.take(p.saved, float64(n)*fp32Bytes)
	p.borrow(tensor.NormBackwardScratch(p.tokens, float64(n), p.s.Seq))
}

// block is block.forward.
func (p *passSizes) block() {
	p.in(Projections)
	p.take(&p.own, p.tokens*float64(p.c.Dim)*p.elem) // the next block's input
	mark := p.scratch.used
	p.mix()
	p.in(Norms)
	p.norm(p.c.Dim)
	p.feed()
	p.scratch.used = mark
}

// mix is block.mix.
func (p *passSizes) mix() {
	mark := p.scratch.used
	p.in(Norms)
	p.norm(p.c.Dim)
	p.attend()
	if p.saved != &p.scratch {
		p.scratch.used = mark
	}
}

// attend is attention.forward.
func (p *passSizes) attend() {
	c, x := p.c, operandSize{rows: p.tokens, cols: float64(p.c.Dim)}
	p.in(Projections)
	if c.QRank > 0 {
		p.linear(p.saved, &x, c.QRank)
		p.norm(c.QRank)
		p.linear(p.saved, &operandSize{rows: p.tokens, cols: float64(c.QRank)}, c.Heads*c.KeyDim())
	} else {
		p.linear(p.saved, &x, c.Heads*c.KeyDim())
	}
	p.linear(p.saved, &x, c.cacheRow())
	p.norm(c.KVRank)
	p.expand()
	p.in(Scores)
	o := operandSize{rows: p.tokens, cols: float64(c.Heads * c.ValueDim)}
	p.take(p.saved, o.rows*o.cols*p.elem)
	p.take(p.saved, p.tokens*float64(c.Heads)*fp32Bytes)
	p.in(Projections)
	p.linear(p.saved, &o, c.Dim)
}

// expand is attention.expand.
func (p *passSizes) expand() {
	c := p.c
	p.in(Projections)
	p.linear(&p.scratch, &operandSize{rows: p.tokens, cols: float64(c.KVRank)}, c.Heads*(c.NopeDim+c.ValueDim))
	p.in(Scores)
	p.take(p.cheap, p.tokens*float64(c.Heads*(c.KeyDim()+c.ValueDim))*p.elem)
}

// feed is feedForward.forward.
func (p *passSizes) feed() {
	if p.c.IsDense(p.layer) {
		p.in(Dense)
		p.network(operandSize{rows: p.tokens, cols: float64(p.c.Dim)}, p.c.DenseInter, &p.scratch)
		return
	}
	c := p.c
	p.in(Router)
	scores := p.tokens * float64(c.Experts) * fp32Bytes
	p.take(p.cheap, p.tokens*float64(c.Dim)*fp32Bytes)
	p.take(p.saved, 2*scores+p.tokens*float64(c.TopK)*fp32Bytes)
	if !p.recomputing {
		p.take(&p.own, p.tokens*float64(c.TopK)*int32Bytes)
	}
	p.in(Routed)
	x := p.receive(p.s.Exchange.Dispatch)
	if c.SharedExperts > 0 {
		p.in(Shared)
		p.network(operandSize{rows: p.tokens, cols: float64(c.Dim)}, c.SharedExperts*c.ExpertInter, &p.scratch)
	}
	p.in(Routed)
	p.network(x, c.ExpertInter, p.saved)
	p.take(&p.scratch, p.tokens*float64(c.Dim)*p.elem)
}

// receive is newArrival.
func (p *passSizes) receive(wire ep.Wire) operandSize {
	x := operandSize{rows: p.rows, cols: float64(p.c.Dim), grouped: true, received: wire != ep.Plain}
	p.take(p.saved, x.rows*x.cols*p.elem)
	if x.received {
		p.take(p.saved, codeBytes(wire.CodeBytes(), x.rows, x.cols))
	}
	return x
}

// network is ffn.forward with its output in the arena to. A network of all tokens that is
// recomputed has no output.
func (p *passSizes) network(x operandSize, inter int, to *arenaSize) {
	p.linear(p.saved, &x, 2*inter)
	h := operandSize{rows: x.rows, cols: float64(inter), grouped: x.grouped}
	p.take(p.cheap, h.rows*h.cols*p.elem)
	if !p.recomputing || x.grouped {
		p.linear(to, &h, p.c.Dim)
	}
}

// blockBackward is block.backward.
func (p *passSizes) blockBackward() {
	mark := p.scratch.used
	if p.s.Recompute == RecomputeFull {
		p.mix()
	}
	half := p.scratch.used
	p.recomputeFeed()
	p.feedBackward()
	p.computeShared()
	p.residual()
	p.normBackward(p.c.Dim)
	p.scratch.used = half
	if p.s.Recompute == RecomputeSelective {
		p.in(Norms)
		p.norm(p.c.Dim)
		if p.c.QRank > 0 {
			p.norm(p.c.QRank)
		}
		p.norm(p.c.KVRank)
		p.expand()
	}
	p.attendBackward()
	p.computeShared()
	p.residual()
	p.normBackward(p.c.Dim)
	p.scratch.used = mark
}

// residual is phase.residual.
func (p *passSizes) residual() {
	if p.s.Split {
		p.take(p.saved, p.tokens*float64(p.c.Dim)*p.elem)
	}
}

// recomputeFeed is block.recomputeFeed.
func (p *passSizes) recomputeFeed() {
	if p.s.Recompute == RecomputeNone {
		return
	}
	p.in(Norms)
	p.norm(p.c.Dim)
	switch c := p.c; {
	case p.s.Recompute == RecomputeFull:
		p.feed()
	case c.IsDense(p.layer):
		p.in(Dense)
		p.take(p.cheap, p.tokens*float64(c.DenseInter)*p.elem)
	default:
		p.in(Routed)
		p.take(p.cheap, p.tokens*float64(c.Dim)*fp32Bytes)
		p.take(p.cheap, (p.tokens*float64(c.SharedExperts)+p.rows)*float64(c.ExpertInter)*p.elem)
	}
}

// feedBackward is feedForward.backward.
func (p *passSizes) feedBackward() {
	c := p.c
	tokens := operandSize{rows: p.tokens, cols: float64(c.Dim)}
	if c.IsDense(p.layer) {
		p.in(Dense)
		p.networkBackward(tokens, c.DenseInter)
		return
	}
	p.in(Routed)
	p.take(&p.scratch, p.tokens*float64(c.TopK)*fp32Bytes)
	rows := p.receive(p.s.Exchange.CombineBackward)
	if c.SharedExperts > 0 {
		p.in(Shared)
		p.networkBackward(tokens, c.SharedExperts*c.ExpertInter)
	}
	p.in(Routed)
	p.take(&p.scratch, p.tokens*float64(c.Dim)*(fp32Bytes+p.elem)) // gradients of the router's input and of all
	p.networkBackward(rows, c.ExpertInter)
}

// networkBackward is ffn.backward of a network with input x.
func (p *passSizes) networkBackward(x operandSize, inter int) {
	quantized := p.s.Recompute != RecomputeSelective && p.recipe() != nil && !p.deferred(&x)
	h := operandSize{rows: x.rows, cols: float64(inter), grouped: x.grouped, received: x.received, byCols: quantized}
	p.linearBackward(&h, p.c.Dim)
	x.received, x.byCols = false, quantized
	p.linearBackward(&x, 2*inter)
}

// attendBackward is attention.backward.
func (p *passSizes) attendBackward() {
	c := p.c
	quantized := p.s.Recompute != RecomputeSelective
	operand := func(cols int) *operandSize {
		return &operandSize{rows: p.tokens, cols: float64(cols), byCols: quantized}
	}
	keys, values := float64(c.Heads*c.KeyDim()), float64(c.Heads*c.ValueDim)
	p.in(Projections)
	p.linearBackward(operand(c.Heads*c.ValueDim), c.Dim)
	p.in(Scores)
	p.take(p.saved, p.tokens*keys*p.elem)
	p.take(&p.scratch, p.tokens*(keys+values)*p.elem)
	shape := tensor.AttentionShape{Seq: p.s.Seq, Heads: c.Heads, KeyDim: c.KeyDim(), ValueDim: c.ValueDim}
	p.borrow(tensor.AttentionBackwardScratch(p.tokens, shape, p.s.Precision.DType))
	p.in(Projections)
	p.take(p.saved, p.tokens*float64(c.Heads*(c.NopeDim+c.ValueDim)+c.cacheRow())*p.elem)
	p.linearBackward(operand(c.KVRank), c.Heads*(c.NopeDim+c.ValueDim))
	p.normBackward(c.KVRank)
	x := operand(c.Dim)
	p.linearBackward(x, c.cacheRow())
	if c.QRank == 0 {
		p.linearBackward(x, c.Heads*c.KeyDim())
		return
	}
	p.linearBackward(operand(c.QRank), c.Heads*c.KeyDim())
	p.normBackward(c.QRank)
	p.linearBackward(x, c.QRank)
}
