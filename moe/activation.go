package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// activation is an input of linear layers: rows of activations or of their gradients, [rows, K].
type activation struct {
	tensor.Tensor
	rowGroups
	// quantized with blocks along rows, and along columns; zero: not quantized, or not yet
	rows, cols mx.Tensor
	// the first layer that quantized it, under whose name an observer sees it; nil: none yet
	shown *mxLinear
}

// rowGroups says how rows are divided among the experts of this rank. The zero value means that all
// rows are tokens of this rank, sequence after sequence.
type rowGroups struct {
	ends   []int32 // of the groups of rows; nil: there are no groups
	first  int     // number of the first group among the experts of this rank
	whole  []int32 // rows of each group together with those of its expert's replicas; empty: there are none
	before []int32 // rows of whole that precede those of this rank; empty: none do
	// of all passes of the step; nil: the rows are those of the step
	inPasses *passRows
}

// linearState is the state of a linear layer in a pass.
type linearState struct {
	x  *activation // its input, which other layers may share
	dy activation  // the gradient of its output
}

// passRows are the rows of a layer's experts on this rank and its replicas in the passes of a step,
// by their places. It is nil if the precision draws no random numbers.
type passRows struct{ counts [][]int32 }

// record sets the rows of a pass.
func (r *passRows) record(p phase, groups rowGroups) {
	if r == nil || !p.train || p.recomputing || p.ex.Dry() {
		return
	}
	for len(r.counts) <= p.place {
		r.counts = append(r.counts, make([]int32, len(groups.ends)))
	}
	if len(groups.whole) > 0 {
		copy(r.counts[p.place], groups.whole)
		return
	}
	from := int32(0)
	for g, end := range groups.ends {
		r.counts[p.place][g], from = end-from, end
	}
}

// before returns the rows of a group in passes before one. A nil r has none.
func (r *passRows) before(place, group int) (n uint64) {
	if r == nil {
		return 0
	}
	for _, rows := range r.counts[:place] {
		n += uint64(rows[group])
	}
	return n
}

// restore gives an activation its rows back. Its quantized forms are lost. From now on only wgrad
// reads the activation, and it quantizes what it reads.
func (a *activation) restore(x tensor.Tensor) {
	*a = activation{Tensor: x, rowGroups: a.rowGroups, shown: a.shown}
}
