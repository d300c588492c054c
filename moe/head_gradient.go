package moe

import (
	"slices"

	"spmoe/mx"
	"spmoe/tensor"
)

// outputGradient sums the gradient of the output's weight, as a balanced binary tree over ranks of
// trees over groups of sequences. Ranks that share it go through their rounds together: each
// multiplies its own columns of the logits' gradients of all ranks.
type outputGradient struct {
	o      *output
	mine   outputRounds
	kept   rowGradients    // of this rank in the current round
	rounds int             // of the rank with the most
	sum    gradientTree    // over ranks
	ranks  []outputPartial // with a host: of all its ranks
}

// train processes all rows and computes the weight's gradient. It is collective if ranks share the
// gradient.
func (o *output) train(p phase, all []prediction) error {
	if o.host == nil && len(p.sequences) == 0 {
		return nil
	}
	sum := o.newGradient(p, all)
	for i := 0; i < sum.rounds; i++ {
		if i < sum.mine.count() {
			lo, hi := sum.mine.part(i, sum.mine.rank)
			o.rows(p, all, lo, hi, sum.kept)
		}
		if err := sum.add(p, i); err != nil {
			return err
		}
	}
	p.pushGrad(&o.weight)
	return nil
}

func (o *output) newGradient(p phase, all []prediction) outputGradient {
	vocab, dim, dtype := o.weight.W.Dim(0), o.weight.W.Dim(1), all[0].x.DType()
	mine := o.rounds(p, all)
	room := mine.room()
	g := outputGradient{
		o: o, mine: mine, rounds: mine.count(),
		kept: rowGradients{dlogits: newBlocked(p.scratch, dtype, room, vocab), x: p.scratch.New(dtype, room, dim)},
	}
	o.piece = o.weight.piece(p)
	if o.host == nil {
		o.partials = slices.Grow(o.partials[:0], 1)[:1]
		o.partials[0] = outputPartial{
			outputRounds: mine, tree: o.weight.gradientTree(p, o.piece, mine.groups(), mine.parts() == 1), operands: o.partials[0].operands,
		}
		g.ranks = o.partials
	} else {
		g.rounds = max(g.rounds, 1) // in which the others tell how many they have
	}
	return g
}

// rounds returns the rounds of this rank in a pass.
func (o *output) rounds(p phase, all []prediction) outputRounds {
	r := o.sizes.rounds(o.weight.W.Dim(0), len(all)*p.batch.Seq, len(p.sequences), o.host != nil)
	if p.cp != nil {
		r.ranks, r.rank = len(p.cp.group.ranksHere()), p.cp.group.place(p.cp.rank)
	}
	return r
}

// add adds the rows in kept. It is collective if ranks share the gradient.
func (g *outputGradient) add(p phase, round int) error {
	h := g.o.host
	if h == nil {
		g.ranks[0].operands = append(g.ranks[0].operands[:0], g.kept)
		g.ranks[0].add(p, g.o, round)
		return nil
	}
	sequences := p.ex.New(tensor.INT32, 1)
	if !p.ex.Dry() {
		sequences.I32()[0] = int32(g.mine.sequences)
	}
	mine := [][]byte{g.kept.dlogits.data.Bytes(), g.kept.x.Bytes(), sequences.Bytes()}
	peers, err := h.window(p.ex, mine)
	if err != nil {
		return err
	}
	if round == 0 {
		g.begin(p, peers.lists)
	}
	if g.o.weight.ownRows() > 0 {
		g.addAll(p, round, peers.lists)
		peers.bytes = g.bytesRead(round)
	}
	return peers.close(p.ex, nil)
}

// begin learns the rounds of all ranks.
func (g *outputGradient) begin(p phase, lists [][][]byte) {
	n := len(lists) / g.mine.sharers()
	g.o.partials = slices.Grow(g.o.partials[:0], n)[:n]
	g.ranks = g.o.partials
	for r := range g.ranks {
		n := g.mine.sequences
		if !p.ex.Dry() {
			n = int(tensor.FromBytes(lists[r*g.mine.sharers()][2], tensor.INT32, 1).I32()[0])
		}
		g.ranks[r] = outputPartial{outputRounds: g.o.sizes.rounds(g.o.weight.W.Dim(0), g.mine.whole, n, true), operands: g.ranks[r].operands}
		g.ranks[r].ranks = g.mine.ranks
		g.rounds = max(g.rounds, g.ranks[r].count())
	}
	w := &g.o.weight
	if g.rounds == 1 || w.ownRows() == 0 {
		return
	}
	g.sum = w.gradientTree(p, g.o.piece, len(g.ranks), true)
	for i := range g.ranks {
		r, to := &g.ranks[i], p.ex.New(tensor.FP32, g.sum.sum.Dims()...)
		if r.sequences == 0 {
			tensor.Zero(p.ex, to)
		}
		r.tree = newGradientTree(p.ex, to, false, r.groups(), r.parts() == 1 && r.ranks == 0)
	}
}

// addAll adds the rows of a round of all ranks, and after the last round adds up the ranks.
func (g *outputGradient) addAll(p phase, round int, lists [][][]byte) {
	parts := g.mine.sharers()
	for i, list := range lists {
		r := &g.ranks[i/parts]
		if i%parts == 0 {
			r.operands = r.operands[:0]
		}
		r.operands = append(r.operands, g.of(list, r.room()))
	}
	if g.rounds == 1 {
		g.addOnce(p)
		return
	}
	for i := range g.ranks {
		g.ranks[i].add(p, g.o, round)
	}
	if round == g.rounds-1 {
		for i := range g.ranks {
			to, adds := g.sum.next()
			if part := g.ranks[i].tree.sum; adds {
				add(p.ex, to, part)
			} else {
				tensor.Convert(p.ex, to.Mat(), part.Mat())
			}
			g.sum.push()
		}
	}
}

// bytesRead returns the bytes of the ranks' operands that addAll reads in a round.
func (g *outputGradient) bytesRead(round int) (sum int) {
	perRow := g.o.piece[1] - g.o.piece[0] + g.o.weight.W.Dim(1)
	for i := range g.ranks {
		if r := &g.ranks[i]; round < r.count() {
			lo, hi := r.rows(round)
			sum += (hi - lo) * perRow * g.kept.x.DType().Size()
		}
	}
	return sum
}

// addOnce adds the rows of all ranks if no rank has more than a round. Partial sums are as small as
// a block.
func (g *outputGradient) addOnce(p phase) {
	piece := g.o.piece
	to, adds := g.o.weight.nextRows(p, piece)
	g.o.ownBlocks(func(block, own [2]int) {
		mark := p.ex.Mark()
		defer p.ex.Release(mark)
		sum := newGradientTree(p.ex, to.Slice(own[0]-piece[0], own[1]-piece[0]), adds, len(g.ranks), p.cp == nil)
		for i := range g.ranks {
			to, adds := sum.next()
			if r := &g.ranks[i]; r.sequences > 0 {
				r.wgrad(p.ex, g.o.sum, to.Mat(), block, own, 0, adds)
			} else if !adds {
				tensor.Zero(p.ex, to)
			}
			sum.push()
		}
	})
}

// of returns a peer's operands of at most held rows.
func (g *outputGradient) of(list [][]byte, held int) rowGradients {
	vocab, dim, dtype := g.o.weight.W.Dim(0), g.o.weight.W.Dim(1), g.kept.x.DType()
	return rowGradients{blocked{tensor.FromBytes(list[0], dtype, held*vocab), held}, tensor.FromBytes(list[1], dtype, held, dim)}
}

// add adds the rows of a round, unless the rank had fewer rounds. The parts of a sequence continue
// one sum.
func (r *outputPartial) add(p phase, o *output, round int) {
	if round >= r.count() {
		return
	}
	part := round % r.parts()
	if part == 0 {
		if r.into, r.adds = r.tree.next(); r.parts() > 1 && !r.adds {
			tensor.Zero(p.ex, r.into)
		}
	}
	first := o.piece[0]
	o.ownBlocks(func(block, own [2]int) {
		r.wgrad(p.ex, o.sum, r.into.Slice(own[0]-first, own[1]-first).Mat(), block, own, round, r.adds)
	})
	if part == r.parts()-1 {
		r.tree.push()
	}
}

// wgrad adds the rows of a round to the gradient of some weights of a block, or sets it to them.
// The parts of a sequence go on with one sum, whether rounds or ranks have them.
func (r *outputPartial) wgrad(ex *tensor.Exec, sum mx.Sum, dw tensor.Matrix, block, own [2]int, round int, accumulate bool) {
	span := r.whole
	if r.parts() > 1 {
		span = 0
	}
	for rank, operands := range r.operands {
		lo, hi := r.part(round, rank)
		if rank > 0 {
			span = 0
		}
		if lo == hi {
			continue
		}
		d := operands.dlogits.block(block[0], block[1]).RowSlice(0, hi-lo)
		operands.wgrad(ex, sum, dw, d.ColSlice(own[0]-block[0], own[1]-block[0]), span, accumulate)
	}
}

// ownBlocks calls f for the blocks of the vocabulary, and the part of each whose gradient this rank
// computes.
func (o *output) ownBlocks(f func(block, own [2]int)) {
	vocab := o.weight.W.Dim(0)
	rows := o.piece
	o.sizes.blocks(vocab, func(lo, hi int) {
		if from, to := max(lo, rows[0]), min(hi, rows[1]); from < to {
			f([2]int{lo, hi}, [2]int{from, to})
		}
	})
}

// wgrad computes the gradient of some weights from the first rows, with d, the gradients of their
// logits: dw = dᵀ·x, or dw += dᵀ·x. With span, it is a tree over sequences of span rows;
// otherwise the rows continue the sum in dw. dw: [weights, dim] FP32.
func (r rowGradients) wgrad(ex *tensor.Exec, sum mx.Sum, dw, d tensor.Matrix, span int, accumulate bool) {
	x := r.x.Slice(0, d.Rows).Mat()
	if span > 0 {
		sum.MultiplyWgrad(ex, dw, d, x, span, accumulate)
	} else {
		sum.MultiplyOn(ex, dw, d.T(), x)
	}
}
