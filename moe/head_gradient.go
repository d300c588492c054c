package moe

import (
	"fmt"
	"slices"

	"spmoe/tensor"
)

// outputRounds divides the rows of a rank in a pass into rounds, each a group of 2^i sequences or a
// part of one. The gradients of a round's logits are held at once.
type outputRounds struct {
	sequences int
	whole     int // rows per sequence
	group     int // sequences per round, or one of which a round is a part
	held      int // rows per round, at most
}

// parts returns the number of rounds of a group.
func (r outputRounds) parts() int { return (r.whole + r.held - 1) / r.held }

// groups returns the number of contributions to the weight's gradient.
func (r outputRounds) groups() int { return (r.sequences + r.group - 1) / r.group }

func (r outputRounds) count() int { return r.groups() * r.parts() }

// rows returns the rows [lo, hi) of a round.
func (r outputRounds) rows(round int) (lo, hi int) {
	first := round / r.parts() * r.group
	end := min(first+r.group, r.sequences) * r.whole
	lo = first*r.whole + round%r.parts()*r.held
	return lo, min(lo+r.held, end)
}

// rowGradients are the operands of the weight gradient for some rows.
type rowGradients struct {
	dlogits blocked
	x       tensor.Tensor // [rows, dim]
}

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

// outputPartial is the gradient from the rows of one rank.
type outputPartial struct {
	outputRounds
	tree gradientTree // over groups
	into tensor.Tensor
	adds bool // the current group is added to what into holds
}

func (o *output) newGradient(p phase, all []prediction) outputGradient {
	vocab, dim, dtype := o.weight.W.Dim(0), o.weight.W.Dim(1), all[0].x.DType()
	mine := o.sizes.rounds(vocab, len(all)*p.batch.Seq, len(p.sequences), o.weight.host != nil)
	g := outputGradient{
		o: o, mine: mine, rounds: mine.count(),
		kept: rowGradients{newBlocked(p.scratch, dtype, mine.held, vocab), p.scratch.New(dtype, mine.held, dim)},
	}
	if o.weight.host == nil {
		o.partials = append(o.partials[:0], outputPartial{
			outputRounds: mine, tree: o.weight.gradientTree(p.ex, mine.groups(), mine.parts() == 1),
		})
		g.ranks = o.partials
	} else {
		g.rounds = max(g.rounds, 1) // in which the others tell how many they have
	}
	return g
}

// add adds the rows in kept. It is collective if ranks share the gradient.
func (g *outputGradient) add(p phase, round int) error {
	h := g.o.weight.host
	if h == nil {
		g.ranks[0].add(p, g.o, round, g.kept)
		return nil
	}
	sequences := p.ex.New(tensor.INT32, 1)
	sequences.I32()[0] = int32(g.mine.sequences)
	peers, err := h.open(p, [][]byte{g.kept.dlogits.data.Bytes(), g.kept.x.Bytes(), sequences.Bytes()})
	if err != nil {
		return err
	}
	if round == 0 {
		err = g.begin(p, peers.lists)
	}
	if w := &g.o.weight; err == nil && w.rows[0] < w.rows[1] {
		err = g.addAll(p, round, peers.lists)
	}
	return peers.close(p, err)
}

// begin learns the rounds of all ranks.
func (g *outputGradient) begin(p phase, lists [][][]byte) error {
	g.o.partials = slices.Grow(g.o.partials[:0], len(lists))[:len(lists)]
	g.ranks = g.o.partials
	for r, list := range lists {
		if len(list[2]) != 4 {
			return fmt.Errorf("rank %d does not tell the number of its sequences", r)
		}
		n := int(tensor.FromBytes(list[2], tensor.INT32, 1).I32()[0])
		g.ranks[r] = outputPartial{outputRounds: g.o.sizes.rounds(g.o.weight.W.Dim(0), g.mine.whole, n, true)}
		g.rounds = max(g.rounds, g.ranks[r].count())
	}
	w := &g.o.weight
	if w.rows[0] == w.rows[1] {
		return nil
	}
	g.sum = w.gradientTree(p.ex, len(lists), true)
	if g.rounds > 1 { // no rank is complete before the last round
		for r := range g.ranks {
			g.ranks[r].sumTo(p, p.ex.New(tensor.FP32, w.own().Dims()...), false)
		}
	}
	return nil
}

// sumTo begins the sum over the groups of a rank.
func (r *outputPartial) sumTo(p phase, to tensor.Tensor, adds bool) {
	if r.sequences == 0 && !adds {
		tensor.Zero(p.ex, to)
	}
	r.tree = newGradientTree(p.ex, to, adds, r.groups(), r.parts() == 1)
}

// addAll adds the rows of a round of all ranks, and after the last round adds up the ranks.
func (g *outputGradient) addAll(p phase, round int, lists [][][]byte) error {
	for i := range g.ranks {
		r := &g.ranks[i]
		operands, ok := g.of(lists[i], r.held)
		if !ok {
			return fmt.Errorf("the operands of rank %d do not fit", i)
		}
		if g.rounds == 1 {
			to, adds := g.sum.next()
			r.sumTo(p, to, adds)
		}
		r.add(p, g.o, round, operands)
		if g.rounds == 1 {
			g.sum.push()
		}
	}
	if g.rounds > 1 && round == g.rounds-1 {
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
	return nil
}

// of returns a peer's operands of at most held rows. It returns false if the lengths do not fit.
func (g *outputGradient) of(list [][]byte, held int) (r rowGradients, ok bool) {
	vocab, dim, dtype := g.o.weight.W.Dim(0), g.o.weight.W.Dim(1), g.kept.x.DType()
	if len(list[0]) != held*vocab*dtype.Size() || len(list[1]) != held*dim*dtype.Size() {
		return r, false
	}
	d := blocked{tensor.FromBytes(list[0], dtype, held*vocab), held}
	return rowGradients{d, tensor.FromBytes(list[1], dtype, held, dim)}, true
}

// add adds the rows of a round, unless the rank had fewer rounds. The parts of a sequence continue
// one sum.
func (r *outputPartial) add(p phase, o *output, round int, operands rowGradients) {
	if round >= r.count() {
		return
	}
	lo, hi := r.rows(round)
	part, span := round%r.parts(), r.whole
	if part == 0 {
		r.into, r.adds = r.tree.next()
	}
	if r.parts() > 1 {
		span = 0
		if part == 0 && !r.adds {
			tensor.Zero(p.ex, r.into)
		}
	}
	o.wgrad(p.ex, r.into, operands, hi-lo, span, r.adds)
	if part == r.parts()-1 {
		r.tree.push()
	}
}

// wgrad computes this rank's rows of the weight's gradient, dw, from the first n rows of r, block
// by block. With span, it is a tree over sequences of span rows; otherwise the rows continue the
// sum in dw.
func (o *output) wgrad(ex *tensor.Exec, dw tensor.Tensor, r rowGradients, n, span int, accumulate bool) {
	x, vocab, own := r.x.Slice(0, n).Mat(), o.weight.W.Dim(0), o.weight.rows
	if o.weight.host == nil {
		own = [2]int{0, vocab}
	}
	o.sizes.blocks(vocab, func(lo, hi int) {
		from, to := max(lo, own[0]), min(hi, own[1])
		if from >= to {
			return
		}
		d := r.dlogits.block(lo, hi).RowSlice(0, n).ColSlice(from-lo, to-lo)
		wgradBlock(ex, dw.Slice(from-own[0], to-own[0]).Mat(), d, x, span, accumulate)
	})
}

// wgradBlock computes the gradient of one block's weights: dw = dᵀ·x, or dw += dᵀ·x. d: [rows,
// block], x: [rows, dim], dw: [block, dim] FP32.
func wgradBlock(ex *tensor.Exec, dw, d, x tensor.Matrix, span int, accumulate bool) {
	if span > 0 {
		tensor.Wgrad(ex, dw, d, x, span, accumulate)
	} else {
		tensor.MatMulAdd(ex, dw, d.T(), x)
	}
}
