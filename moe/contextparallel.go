package moe

// Context parallelism. In a pass, the ranks of cp · tp share one sequence: each has the tokens of
// one part of it, in the order of the ranks. So rows of ranks still follow each other in the
// order of the global batch, and whatever depends on that order is as without cp: the rows of
// experts, their capacity, random numbers, scales of tensors.
//
// Rows are computed by the rank that has the token. What mixes tokens of a sequence is exchanged
// through shared memory, in the order of one rank:
//
//	attention        each rank computes some of the heads, for the whole sequence
//	gradients        of dense weights are one chain over the parts: see host
//	norms            the sums of runs of rows are added up in order, some columns by each rank
//	router, biases   one rank of the group computes the gradient, and the others add zeros
//	head             the rows of a round are next to each other, with the tokens of any rank
//	losses           one rank adds up those of all tokens

import (
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// first returns the position of the part's first token.
func (c *contextPart) first() int { return c.rank * c.tokens }

// contextUnit returns the number of tokens that ranks cannot divide: a block of the recipe, and of
// the sums of products and norms.
func (p Precision) contextUnit() int { return max(p.TokenBlock(), format.MXBlock) }

// positions returns the table of the positions of this rank's tokens, and their number in each
// sequence.
func (p phase) positions(table *tensor.RotaryTable) (*tensor.RotaryTable, int) {
	if p.cp != nil {
		return table.From(p.cp.first()), p.cp.tokens
	}
	return table, p.batch.Seq
}

// heads divides the heads of attention: shape and top, their largest scores, become those of this
// rank's heads.
func (p phase) heads(shape tensor.AttentionShape, top []float32) (tensor.AttentionShape, []float32) {
	if p.cp == nil {
		return shape, top
	}
	shape.Heads /= p.cp.ranks
	shape.KVHeads /= p.cp.ranks
	if top != nil {
		top = top[p.cp.rank*shape.Heads:][:shape.Heads]
	}
	return shape, top
}

// whole returns the batch of the ranks that share a sequence, or this rank's own.
func (p phase) whole() Batch {
	if p.cp != nil {
		return p.cp.whole
	}
	return p.batch
}

// endsHere returns the number of sequences whose last token this rank has.
func (p phase) endsHere() int {
	switch {
	case p.cp == nil:
		return len(p.batch.Inputs) / p.batch.Seq
	case p.cp.rank == p.cp.ranks-1:
		return 1
	}
	return 0
}

// cut returns this rank's tokens of the sequence. Attention has those of all ranks.
func (c *contextPart) cut() Batch {
	b, lo, hi := c.whole, c.first(), c.first()+c.tokens
	b.Inputs, b.Targets, b.First = b.Inputs[lo:hi], b.Targets[lo:hi], nil
	return b
}

// local returns the arena for rows that other ranks of the group copy at once: scratch memory. It
// returns saved if there are none.
func (p phase) local(saved *tensor.Arena) *tensor.Arena {
	if p.cp != nil {
		return p.scratch
	}
	return saved
}

// over returns the ranks that compute gradients from each other's operands: those of a host or, if
// a sequence is on several hosts, those that share it.
func (c *contextPart) over(h *host) *peers {
	if c == nil || c.group.sent == nil {
		return h.peers
	}
	return c.group
}

// share opens buffers to a group, and calls read with those of all ranks. read returns the bytes
// that it has read or written. share is collective in the group. If it fails, so does the pass.
func (p phase) share(group *peers, mine [][]byte, read func(lists [][][]byte) (bytes int)) {
	if p.failed == nil {
		p.failed = group.read(p.ex, mine, read)
	}
}

// gather calls read with x of each rank that shares a sequence in turn. All have the same shape.
// With first, only the first rank reads.
func (p phase) gather(x tensor.Tensor, first bool, read func(x tensor.Tensor)) {
	if p.cp == nil {
		if !p.ex.Dry() {
			read(x)
		}
		return
	}
	p.share(p.cp.group, [][]byte{x.Bytes()}, func(lists [][][]byte) (bytes int) {
		if first && p.cp.rank > 0 {
			return 0
		}
		for _, list := range lists {
			if bytes += len(list[0]); !p.ex.Dry() {
				read(tensor.FromBytes(list[0], x.DType(), x.Len()))
			}
		}
		return bytes
	})
}

// exchanged is a matrix that changes hands, and the arena for what replaces it; nil: it stays.
type exchanged struct {
	x  tensor.Tensor
	to *tensor.Arena
}

// toHeads returns, for matrices with all heads of this rank's tokens, [tokens, heads·n], those with
// this rank's heads of all tokens, [seq, heads/cp·n]. A rank with whole sequences has all heads.
func (p phase) toHeads(list [3]exchanged) [3]tensor.Tensor { return p.exchange(list, true) }

// toRows is the inverse of toHeads.
func (p phase) toRows(list [3]exchanged) [3]tensor.Tensor { return p.exchange(list, false) }

func (p phase) exchange(list [3]exchanged, toHeads bool) (all [3]tensor.Tensor) {
	var mine [][]byte
	var which []int
	c := p.cp
	for i, e := range list {
		if all[i] = e.x; e.to == nil || c == nil {
			continue
		}
		mine, which = append(mine, e.x.Bytes()), append(which, i)
		rows, cols := e.x.Dim(0)*c.ranks, e.x.Dim(1)/c.ranks
		if !toHeads {
			rows, cols = e.x.Dim(0)/c.ranks, e.x.Dim(1)*c.ranks
		}
		all[i] = e.to.New(e.x.DType(), rows, cols)
	}
	if c == nil {
		return all
	}
	p.share(c.group, mine, func(lists [][][]byte) (bytes int) {
		for n, i := range which {
			x := list[i].x
			for r, of := range lists {
				from := tensor.MatrixFromBytes(of[n], x.DType(), x.Dim(0), x.Dim(1))
				to, rows, cols := all[i].Mat(), c.tokens, all[i].Dim(1)
				if toHeads {
					to = to.RowSlice(r*rows, (r+1)*rows)
					from = from.ColSlice(c.rank*cols, (c.rank+1)*cols)
				} else {
					cols /= c.ranks
					to = to.ColSlice(r*cols, (r+1)*cols)
					from = from.RowSlice(c.rank*rows, (c.rank+1)*rows)
				}
				tensor.Convert(p.ex, to, from)
				bytes += to.Rows * to.Cols * to.DType().Size()
			}
		}
		return bytes
	})
	return all
}

// sequenceWgrad adds dyᵀ·x over the whole sequence to the gradient of a weight that each rank has
// for itself. One rank of the group does so, and the others add zeros. dy and x have this rank's
// tokens.
func (p phase) sequenceWgrad(w *weight, dy, x tensor.Tensor) {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	to, adds := w.nextGrad(p)
	sum := to
	if adds {
		sum = p.ex.New(tensor.FP32, to.Dims()...)
	}
	reader := p.layer % p.cp.ranks
	p.share(p.cp.group, [][]byte{dy.Bytes(), x.Bytes()}, func(lists [][][]byte) (bytes int) {
		if p.cp.rank != reader {
			if !p.ex.Dry() {
				sum.Zero()
			}
			return 0
		}
		for r, list := range lists {
			left := tensor.MatrixFromBytes(list[0], dy.DType(), dy.Dim(0), dy.Dim(1))
			right := tensor.MatrixFromBytes(list[1], x.DType(), x.Dim(0), x.Dim(1))
			if r > 0 {
				tensor.MatMulAdd(p.ex, sum.Mat(), left.T(), right)
			} else {
				tensor.Wgrad(p.ex, sum.Mat(), left, right, p.cp.tokens, false)
			}
			bytes += len(list[0]) + len(list[1])
		}
		return bytes
	})
	if adds {
		add(p.ex, to, sum)
	}
	p.pushGrad(w)
}

// normBackward sets dx and dw to the gradients of a norm of span rows per sequence, with input x:
// see tensor.RMSNormBackward. For a part of a sequence, the sums of runs of rows are those of one
// rank. Each rank adds up some columns of them and leaves zeros in the others.
func (p phase) normBackward(dx tensor.Matrix, dw []float32, dy, x tensor.Matrix, w, rstd []float32, addToDX bool, span int) {
	if p.cp == nil {
		tensor.RMSNormBackward(p.ex, dx, dw, dy, x, w, rstd, addToDX, span)
		return
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	c, n := p.cp, x.Cols
	runs := p.ex.New(tensor.FP32, tensor.NormRuns(x.Rows), n)
	tensor.RMSNormBackwardRuns(p.ex, dx, runs.Mat(), dy, x, w, rstd, addToDX)
	lo, hi := n*c.rank/c.ranks, n*(c.rank+1)/c.ranks
	p.share(c.group, [][]byte{runs.Bytes()}, func(lists [][][]byte) (bytes int) {
		all := make([]tensor.Matrix, len(lists))
		for r, list := range lists {
			all[r] = tensor.MatrixFromBytes(list[0], tensor.FP32, runs.Dim(0), n).ColSlice(lo, hi)
			bytes += len(list[0]) / n * (hi - lo)
		}
		tensor.SumNormRuns(p.ex, dw[lo:hi], all)
		return bytes
	})
}

// parts returns the number of ranks that share a sequence.
func (c *contextPart) parts() int {
	if c == nil {
		return 1
	}
	return c.ranks
}
