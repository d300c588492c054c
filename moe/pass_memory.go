package moe

// The memory of a training pass, counted from shapes. It repeats what the layers allocate, in their
// order, in two arenas whose sizes are numbers: see phase.

import (
	"spmoe/collective/ep"
	"spmoe/mx"
	"spmoe/tensor"
)

// PassShape describes the passes of a rank.
type PassShape struct {
	Stage          Stage // the zero value: the whole model
	Sequences, Seq int   // of a pass of one rank
	Sharers        int   // ranks that hold one copy of the dense weights: those of one host
	EP, Replicas   int   // ranks that the experts are spread over; ranks with the same experts
	Precision      Precision
	Recompute      Recompute
	Exchange       ep.Options
	Split          bool // backward passes are BackwardInput and, later, BackwardWeight
	Adds           bool // a step has several passes, and the later ones add to gradients
	Deferred       int  // passes that a gradient of the routed experts covers; see Config.WgradPasses
}

// PartKey names a part of the model or of its MTP module.
type PartKey struct {
	Part Part
	MTP  bool
}

// PassMemory holds the bytes that passes of one rank need at once. Experts are assumed to receive
// equally many rows.
type PassMemory struct {
	Saved   map[PartKey]float64 // from the forward pass of a part to its backward pass, or longer
	Rows    float64             // rows of routed experts that passes leave to a later one's gradient
	Scratch float64             // the most that is in the arena of the rank's Exec at once
	Peak    PartKey             // the part that needs most scratch memory
	Packing float64             // the packing buffers of one thread
	Helping float64             // the arena of a thread that helps another one
}

// AllSaved returns the bytes that are saved for all parts.
func (m PassMemory) AllSaved() (sum float64) {
	for _, bytes := range m.Saved {
		sum += bytes
	}
	return sum
}

// Most returns the memory of a rank with two stages, for a pass of the one that saves more.
func (m PassMemory) Most(o PassMemory) PassMemory {
	if o.AllSaved() > m.AllSaved() {
		m.Saved = o.Saved
	}
	if o.Scratch > m.Scratch {
		m.Scratch, m.Peak = o.Scratch, o.Peak
	}
	m.Rows += o.Rows
	m.Packing, m.Helping = max(m.Packing, o.Packing), max(m.Helping, o.Helping)
	return m
}

// PassMemory counts the memory of passes.
func (c Config) PassMemory(s PassShape) PassMemory {
	if s.Stage == (Stage{}) {
		s.Stage = c.Whole()
	}
	tokens := float64(s.Sequences) * float64(s.Seq)
	p := &passSizes{
		c: c, s: s, tokens: tokens, elem: float64(s.Precision.DType.Size()),
		memory: PassMemory{Saved: map[PartKey]float64{}},
	}
	p.rows = tokens * float64(c.TopK)
	if s.Exchange.Capacity > 0 {
		p.rows *= min(s.Exchange.Capacity, 1)
	}
	p.rows += float64(c.Experts/max(s.EP, 1)*s.Exchange.Alignment) / 2
	p.forward()
	p.backward()
	shape := tensor.AttentionShape{Seq: s.Seq, KeyDim: c.KeyDim(), ValueDim: c.ValueDim}
	p.memory.Helping = tensor.AttentionBackwardScratch(0, shape, s.Precision.DType)
	if s.Deferred > 1 {
		each := p.rows * float64(2*c.Dim+3*c.ExpertInter) * p.elem
		p.memory.Rows = float64(s.Deferred-1) * float64(c.only(s.Stage).MoELayers()) * each
	}
	p.memory.Packing = p.products.Bytes()
	return p.memory
}

// arenaSize is the size of an arena. The zero value is that of an empty one.
type arenaSize struct{ used float64 }

// passSizes is a pass that allocates nothing. Sizes are float64, which does not overflow.
type passSizes struct {
	c      Config
	s      PassShape
	tokens float64
	rows   float64 // that the experts of a rank receive
	elem   float64 // bytes of an activation

	own, scratch arenaSize // of the pass, and of the Exec
	saved, cheap *arenaSize
	recomputing  bool
	layer        int
	part         PartKey
	memory       PassMemory
	shared       []gradientSize // gradients that wait for host.compute
	products     tensor.PackingSize
}

// gradientSize is a weight gradient [out, in], over rows tokens of each rank.
type gradientSize struct {
	out, in, rows float64
	recipe        *Recipe // nil: not quantized
}

// operandSize is an activation.
type operandSize struct {
	rows, cols    float64
	grouped       bool // the rows are those of experts
	received      bool // as codes
	shown, byCols bool // quantized; along columns as well
}

// take allocates bytes.
func (p *passSizes) take(from *arenaSize, bytes float64) {
	from.used += bytes
	if from == &p.own {
		p.memory.Saved[p.part] += bytes
	} else if from.used > p.memory.Scratch {
		p.memory.Scratch, p.memory.Peak = from.used, p.part
	}
}

// borrow allocates scratch memory and frees it.
func (p *passSizes) borrow(bytes float64) {
	mark := p.scratch.used
	p.take(&p.scratch, bytes)
	p.scratch.used = mark
}

// in makes a part the one to which memory is attributed.
func (p *passSizes) in(part Part) { p.part.Part = part }

// recipe returns how weights of the current part are quantized in the current layer; nil: not.
func (p *passSizes) recipe() *Recipe {
	return p.s.Precision.of(p.part.Part, p.layer, p.c.Layers)
}

// deferred reports whether a gradient of groups covers several passes.
func (p *passSizes) deferred(x *operandSize) bool { return x.grouped && p.s.Deferred > 1 }

// forward is the first half of a pass: Pass.forward.
func (p *passSizes) forward() {
	p.saved, p.cheap = &p.own, &p.own
	switch p.s.Recompute {
	case RecomputeSelective:
		p.cheap = &p.scratch
	case RecomputeFull:
		p.saved, p.cheap = &p.scratch, &p.scratch
	}
	hidden := p.tokens * float64(p.c.Dim) * p.elem
	p.in(Embedding)
	p.take(&p.own, hidden)
	for p.layer = p.s.Stage.First; p.layer < p.s.Stage.End; p.layer++ {
		p.block()
	}
	p.in(Head)
	p.take(&p.own, hidden) // its gradient
	p.forwardMTP(hidden)
	if !p.s.Stage.Predict {
		return
	}
	p.in(Head)
	p.multiply(p.tokens, float64(p.c.Vocab), float64(p.c.Dim), 1)
	p.borrow(p.c.outputScratch(p.s))
}

// forwardMTP counts what a stage saves for the MTP module. Its hidden state and the embedded
// targets may come from other stages.
func (p *passSizes) forwardMTP(hidden float64) {
	switch s := p.s.Stage; {
	case p.c.MTPLayers == 0:
	case s.MTP:
		p.part.MTP, p.layer = true, p.c.Layers
		p.in(Joint)
		p.take(&p.own, 5*hidden+2*p.tokens*4) // embedded, joined, projected, gradient; two norms
		p.block()
		p.part.MTP = false
	case s.Embed:
		p.take(&p.own, 2*hidden) // embedded targets, and their gradient
	case s.Predict:
		p.take(&p.own, hidden) // the gradient of the module's hidden state
	}
}

// outputScratch returns the bytes of scratch memory of the head. Batches beyond all machines have
// more than any.
func (c Config) outputScratch(s PassShape) float64 {
	const most = 1 << 50
	if tokens := float64(s.Sequences) * float64(s.Seq); tokens*float64(max(c.Dim, 1)) > most || c.Vocab > 1<<30 {
		return most
	}
	if c.Vocab < 1 || s.Seq < 1 || s.Sequences < 1 { // an invalid model
		return 0
	}
	return float64(c.OutputScratch(s.Sequences, s.Seq, s.Precision.DType, s.Adds, max(s.Sharers, 1)))
}

// backward is the second half: Pass.Backward. What a split backward pass saves is in the arena of
// the pass, and its scratch memory is at most that of one that is not split.
func (p *passSizes) backward() {
	p.saved, p.cheap, p.recomputing = &p.scratch, &p.scratch, true
	if p.s.Split {
		p.saved, p.cheap = &p.own, &p.own
	}
	p.scratch.used = 0
	if p.s.Stage.MTP {
		p.part.MTP, p.layer = true, p.c.Layers
		p.in(Joint)
		hidden := p.tokens * float64(p.c.Dim) * p.elem
		p.take(&p.own, hidden) // the gradient of the embedded targets
		p.blockBackward()
		p.in(Joint)
		x := operandSize{rows: p.tokens, cols: float64(2 * p.c.Dim), byCols: p.s.Recompute == RecomputeNone}
		p.linearBackward(&x, p.c.Dim)
		p.computeShared()
		p.scratch.used, p.part.MTP = 0, false
	}
	for p.layer = p.s.Stage.End - 1; p.layer >= p.s.Stage.First; p.layer-- {
		p.blockBackward()
	}
}

// quantize allocates the codes of an input: mxLinear.quantizeInput.
func (p *passSizes) quantize(x *operandSize) {
	r := p.recipe()
	if r == nil || x.shown {
		return
	}
	x.shown = true
	if r.Wgrad.Quantizes() && (p.s.Recompute == RecomputeNone || p.recomputing) && !p.deferred(x) {
		x.byCols = true
		p.take(p.cheap, codeBytes(r.Wgrad.Right.Format.BytesPerElement(), x.rows, x.cols))
	}
	if r.Forward.Quantizes() && !x.received {
		p.take(&p.scratch, codeBytes(r.Forward.Left.Format.BytesPerElement(), x.rows, x.cols))
	}
	p.transform(x.rows*x.cols, r.Forward.Left, r.Wgrad.Right)
}

// transform counts the transformed copy of a matrix. There is one at a time.
func (p *passSizes) transform(elements float64, casts ...mx.Cast) {
	for _, c := range casts {
		if c.Format.Hadamard > 0 {
			p.borrow(elements * p.elem)
			return
		}
	}
}

// decode counts the decoded copies of a product's operands, and the FP32 sums of a product in the
// working type, by their elements.
func (p *passSizes) decode(of Product, left, right, sums float64) {
	switch each := mx.DecodedBytes(of.Left.Format, of.Right.Format); each {
	case 0:
	case tensor.FP32.Size():
		p.borrow(float64(each) * (left + right + sums))
	default:
		p.borrow(float64(each) * (left + right))
	}
}

// weightLen returns the elements of the weight of a linear layer on a rank.
func (p *passSizes) weightLen(x *operandSize, out float64) float64 {
	if x.grouped {
		out *= float64(p.c.Experts / max(p.s.EP, 1))
	}
	return out * x.cols
}

func codeBytes(each, rows, cols float64) float64 { return each * rows * cols }

// linear is linear.forward, with outputs in the arena to.
func (p *passSizes) linear(to *arenaSize, x *operandSize, out int) {
	p.quantize(x)
	p.multiply(p.perProduct(x), float64(out), x.cols, 1)
	p.take(to, x.rows*float64(out)*p.elem)
	if r := p.recipe(); r != nil {
		p.decode(r.Forward, x.rows*x.cols, p.weightLen(x, float64(out)), x.rows*float64(out))
	}
}

// multiply counts the packing buffers of a product.
func (p *passSizes) multiply(m, n, k float64, leaves int) {
	p.products.Add(m, n, k, p.s.Precision.DType, leaves)
}

// fullest bounds the rows of an expert, as a multiple of the mean. Loads are that uneven while the
// learning rate rises; later the router's biases keep them closer.
const fullest = 4

// perProduct returns the rows of one product: all, or those of the fullest expert.
func (p *passSizes) perProduct(x *operandSize) float64 {
	if x.grouped {
		return min(fullest*x.rows/float64(max(p.c.Experts/max(p.s.EP, 1), 1)), x.rows)
	}
	return x.rows
}

// linearBackward is linear.backward in a fused phase. out is the number of columns of dy.
func (p *passSizes) linearBackward(x *operandSize, out int) {
	p.take(&p.scratch, x.rows*x.cols*p.elem)
	each, wide := p.perProduct(x), float64(out)
	p.multiply(each, x.cols, wide, 1)
	leaves := p.s.Sequences
	if x.grouped {
		leaves = 1
	}
	p.multiply(wide/float64(p.sharers()), x.cols, each, leaves)
	r, late := p.recipe(), p.deferred(x)
	quantizes := r != nil && r.Wgrad.Quantizes() && !late
	if quantizes && !x.byCols {
		x.byCols = true
		p.take(&p.scratch, codeBytes(r.Wgrad.Right.Format.BytesPerElement(), x.rows, x.cols))
	}
	dyCols := func() {
		if quantizes {
			p.take(p.saved, codeBytes(r.Wgrad.Left.Format.BytesPerElement(), x.rows, wide))
		}
	}
	if p.sharers() > 1 {
		dyCols()
		p.shared = append(p.shared, gradientSize{wide, x.cols, x.rows, r})
	}
	mark := p.scratch.used
	if p.sharers() == 1 {
		dyCols()
	}
	if r != nil {
		if r.Dgrad.Quantizes() && !x.received {
			p.take(&p.scratch, codeBytes(r.Dgrad.Left.Format.BytesPerElement(), x.rows, wide))
		}
		p.transform(x.rows*wide, r.Dgrad.Left, r.Wgrad.Left)
		p.decode(r.Dgrad, x.rows*wide, p.weightLen(x, wide), x.rows*x.cols)
		if quantizes && p.sharers() == 1 {
			p.decode(r.Wgrad, x.rows*wide, x.rows*x.cols, 0)
		}
	}
	if late || x.grouped && p.s.Replicas > 1 { // rows of several passes, or of all replicas for a part of the experts
		bytes := p.elem
		if r != nil && r.Wgrad.Quantizes() {
			bytes += r.Wgrad.Left.Format.BytesPerElement()
		}
		p.take(&p.scratch, float64(max(p.s.Deferred, 1))*x.rows*(x.cols+wide)*bytes)
	}
	p.scratch.used = mark
}

// sharers returns the number of ranks that hold the current part's weights together.
func (p *passSizes) sharers() int {
	if p.part.Part.Class() == Linear {
		return max(p.s.Sharers, 1)
	}
	return 1
}

// computeShared is host.compute: partial sums of one gradient at a time.
func (p *passSizes) computeShared() {
	sums := float64(treeSums(p.s.Sharers, true, p.s.Adds))
	for _, g := range p.shared {
		parts := max(min(int(g.out)/leastWgradRows, p.s.Sharers), 1)
		mark := p.scratch.used
		p.take(&p.scratch, sums*g.out/float64(parts)*g.in*float64(tensor.FP32.Size()))
		if g.recipe != nil {
			p.decode(g.recipe.Wgrad, g.rows*g.out, g.rows*g.in, 0)
		}
		p.scratch.used = mark
	}
	p.shared = p.shared[:0]
}
