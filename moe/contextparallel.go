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
	"fmt"
	"unsafe"

	"spmoe/collective/mesh"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// first returns the position of the part's first token.
func (c *contextPart) first() int { return c.rank * c.tokens }

// contextUnit returns the number of tokens that ranks cannot divide: a block of the recipe, and of
// the sums of products and norms.
func (p Precision) contextUnit() int { return max(p.TokenBlock(), format.MXBlock) }

// CheckContext returns an error if ranks cannot share sequences of seq tokens with the bits of one
// rank.
func (p Precision) CheckContext(c Config, l mesh.Layout, seq int) error {
	n := l.Sharers()
	if n < 2 {
		return nil
	}
	if unit := n * p.contextUnit(); seq%unit != 0 {
		return fmt.Errorf("seq is %d: the %d ranks that share a sequence (%s) take whole blocks of %d tokens each: give a multiple of %d", seq, n, l.SharersName(), p.contextUnit(), unit)
	}
	if heads := c.layer(0).attention.shape().KVHeads; heads%n != 0 {
		name := "model.heads"
		if c.KVHeads != 0 {
			name = "model.kv_heads"
		}
		return fmt.Errorf("%s is %d: the ranks that share a sequence divide the heads of attention, and %s is %d: give degrees whose product divides it", l.SharersName(), n, name, heads)
	}
	return nil
}

// contextOf returns this rank's part of a pass over b; nil: b is its own.
func (m *Model) contextOf(b Batch, train bool) *contextPart {
	if m.context == nil || !train && !b.Shared || len(b.Inputs) == 0 {
		return nil
	}
	comm := m.mesh.Sequence
	if unit := comm.Size() * m.precision.contextUnit(); len(b.Inputs) != b.Seq || b.Seq%unit != 0 {
		panic(fmt.Sprintf("moe: a pass of %d tokens for %d ranks: give one sequence of %d, a multiple of %d", len(b.Inputs), comm.Size(), b.Seq, unit))
	}
	return &contextPart{group: m.context, tensor: m.tensor, rank: comm.Rank(), ranks: comm.Size(), tokens: b.Seq / comm.Size(), whole: b}
}

// PassTokens returns the tokens of a pass over b that this rank has: with cp, a part of a sequence.
func (m *Model) PassTokens(b Batch, train bool) int {
	if c := m.contextOf(b, train); c != nil {
		return c.tokens
	}
	return len(b.Inputs)
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
func (p phase) share(group *peers, mine [][]byte, read func(lists [][][]byte) (bytes int, err error)) {
	if p.failed == nil {
		p.failed = group.read(p.ex, mine, read)
	}
}

// gather calls read with x of each rank of the cp group in turn. All have the same shape. With
// first, only the first rank reads.
func (p phase) gather(x tensor.Tensor, first bool, read func(x tensor.Tensor)) {
	p.share(p.cp.group, [][]byte{x.Bytes()}, func(lists [][][]byte) (bytes int, err error) {
		if first && p.cp.rank > 0 {
			return 0, nil
		}
		for rank, list := range lists {
			if len(list[0]) != len(x.Bytes()) {
				return bytes, fmt.Errorf("rank %d shows %d bytes, want %d", rank, len(list[0]), len(x.Bytes()))
			}
			if bytes += len(list[0]); !p.ex.Dry() {
				read(tensor.FromBytes(list[0], x.DType(), x.Len()))
			}
		}
		return bytes, nil
	})
}

// exchanged is a matrix that changes hands, and the arena for what replaces it.
type exchanged struct {
	x  tensor.Tensor
	to *tensor.Arena
}

// toHeads returns, for matrices with all heads of this rank's tokens, [tokens, heads·n], those with
// this rank's heads of all tokens, [seq, heads/cp·n].
func (p phase) toHeads(list ...exchanged) []tensor.Tensor { return p.exchange(list, true) }

// toRows is the inverse of toHeads.
func (p phase) toRows(list ...exchanged) []tensor.Tensor { return p.exchange(list, false) }

func (p phase) exchange(list []exchanged, toHeads bool) (all []tensor.Tensor) {
	var mine [][]byte
	c := p.cp
	for _, e := range list {
		mine = append(mine, e.x.Bytes())
		rows, cols := e.x.Dim(0)*c.ranks, e.x.Dim(1)/c.ranks
		if !toHeads {
			rows, cols = e.x.Dim(0)/c.ranks, e.x.Dim(1)*c.ranks
		}
		all = append(all, e.to.New(e.x.DType(), rows, cols))
	}
	p.share(c.group, mine, func(lists [][][]byte) (bytes int, err error) {
		for i, e := range list {
			for r, of := range lists {
				from, ok := rowsOf(of[i], e.x.DType(), e.x.Dim(0), e.x.Dim(1))
				if !ok {
					return bytes, fmt.Errorf("the matrices of rank %d do not fit", r)
				}
				to, rows, cols := all[i].Mat(), c.tokens, all[i].Dim(1)
				if toHeads {
					to, from = to.RowSlice(r*rows, (r+1)*rows), from.ColSlice(c.rank*cols, (c.rank+1)*cols)
				} else {
					cols /= c.ranks
					to, from = to.ColSlice(r*cols, (r+1)*cols), from.RowSlice(c.rank*rows, (c.rank+1)*rows)
				}
				tensor.Convert(p.ex, to, from)
				bytes += to.Rows * to.Cols * to.DType().Size()
			}
		}
		return bytes, nil
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
	p.share(p.cp.group, [][]byte{dy.Bytes(), x.Bytes()}, func(lists [][][]byte) (bytes int, err error) {
		if p.cp.rank != reader {
			if !p.ex.Dry() {
				sum.Zero()
			}
			return 0, nil
		}
		for r, list := range lists {
			left, ok := rowsOf(list[0], dy.DType(), dy.Dim(0), dy.Dim(1))
			right, fits := rowsOf(list[1], x.DType(), x.Dim(0), x.Dim(1))
			if !ok || !fits {
				return bytes, fmt.Errorf("the operands of rank %d do not fit", r)
			}
			if r > 0 {
				tensor.MatMulAdd(p.ex, sum.Mat(), left.T(), right)
			} else {
				tensor.Wgrad(p.ex, sum.Mat(), left, right, p.cp.tokens, false)
			}
			bytes += len(list[0]) + len(list[1])
		}
		return bytes, nil
	})
	if adds {
		add(p.ex, to, sum)
	}
	p.pushGrad(w)
}

// contextBackward is backward for a part of a sequence. The sums of runs of rows are those of one
// rank. Each rank adds up some columns of them and leaves zeros in the others.
func (l *rmsNorm) contextBackward(p phase, dx, dy tensor.Matrix, addToDX bool, s *normState) {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	c, n := p.cp, s.x.Cols
	runs := p.ex.New(tensor.FP32, tensor.NormRuns(s.x.Rows), n)
	tensor.RMSNormBackwardRuns(p.ex, dx, runs.Mat(), dy, s.x, l.weight.W.F32(), s.rstd.F32(), addToDX)
	lo, hi := n*c.rank/c.ranks, n*(c.rank+1)/c.ranks
	p.share(c.group, [][]byte{runs.Bytes()}, func(lists [][][]byte) (bytes int, err error) {
		all := make([]tensor.Matrix, len(lists))
		for r, list := range lists {
			part, ok := rowsOf(list[0], tensor.FP32, runs.Dim(0), n)
			if !ok {
				return 0, fmt.Errorf("the gradients of rank %d do not fit", r)
			}
			all[r] = part.ColSlice(lo, hi)
			bytes += len(list[0]) / n * (hi - lo)
		}
		tensor.SumNormRuns(p.ex, s.dw.F32()[lo:hi], all)
		return bytes, nil
	})
}

// float64s returns memory as numbers.
func float64s(b []byte) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// parts returns the number of ranks that share a sequence.
func (c *contextPart) parts() int {
	if c == nil {
		return 1
	}
	return c.ranks
}

// sequencePeers returns the ranks that share a sequence; nil: this one alone does.
func (m Mesh) sequencePeers() *peers {
	if m.Sequence == nil {
		return nil
	}
	return newPeers(m.Sequence, m.SequenceHost)
}

// sharers returns the ranks with which a rank shares sequences.
func (m Mesh) sharers() []int { return m.Layout.Group(m.World.Rank(), mesh.CP, mesh.TP) }

// tensorGroup returns the ranks of this host with which a rank divides products.
func (m Mesh) tensorGroup() (here []int) {
	for _, rank := range m.Layout.Group(m.World.Rank(), mesh.TP) {
		if m.World.HostOf(rank) == m.World.Host() {
			here = append(here, rank)
		}
	}
	return here
}
