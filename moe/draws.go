package moe

// The random numbers of stochastic rounding. That of an element depends on its place in the global
// batch and not on the rank or the pass that has it, so codes have the same bits in every layout
// and for any number of passes. The place of a token is its row among those of all ranks and
// passes. That of an expert's row is the expert, and the row among those of all replicas and
// passes. Inputs in a forward product are the exception: passes may begin in any order, so there
// it is the pass, and the row in it.

import (
	"fmt"
	"hash/fnv"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor/profile"
)

// Bits of a row's index from which on it holds the pass, if it does, and the expert.
const (
	passBit   = 32
	expertBit = 48
)

// locate counts the rows of earlier passes, and of earlier ranks in this one, if the precision
// draws random numbers. Passes before the last one have equally many rows. It is collective.
func (p phase) locate() error {
	m := p.model
	if p.earlier = 0; !m.precision.draws() {
		return nil
	}
	earlier, all, err := p.countRows()
	if err != nil {
		return fmt.Errorf("counting the tokens of ranks: %w", err)
	}
	p.earlier = earlier
	if p.train {
		if m.begun == 1 {
			m.passRows = all
		}
		p.earlier += uint64(p.place) * m.passRows
	}
	return nil
}

// countRows returns the rows of earlier ranks in this pass, and those of all ranks.
func (p phase) countRows() (earlier, all uint64, err error) {
	mine, c := len(p.batch.Inputs), p.model.mesh.Operands
	if c == nil {
		return 0, uint64(mine), nil
	}
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	counts := make([]int64, c.Size())
	if err := collective.AllGather(c, counts, []int64{int64(mine)}); err != nil {
		return 0, 0, err
	}
	for r, n := range counts {
		if r < c.Rank() {
			earlier += uint64(n)
		}
		all += uint64(n)
	}
	return earlier, all, nil
}

// draws names the random numbers for an operand, if its cast needs them.
func (q *mxLinear) draws(p phase, o Operand, d mx.Direction, by mx.Cast, a *activation) mx.Draws {
	if by.Rounding != mx.Stochastic || p.ex.Dry() {
		return mx.Draws{}
	}
	draws := mx.Draws{Seed: p.batch.Seed, Step: p.batch.Step, Stream: q.stream(o, d)}
	if a.ends == nil {
		draws.First = p.earlier
		return draws
	}
	pass := uint64(0)
	if o == Input && d == mx.AlongRows {
		pass = uint64(p.place) << passBit
	}
	draws.Rows = p.rows[:0]
	from := int32(0)
	for g, end := range a.ends {
		at := uint64(q.firstExpert+a.first+g)<<expertBit + pass
		if len(a.before) > 0 {
			at += uint64(a.before[g])
		}
		if o == Gradient {
			at += a.inPasses.before(p.place, g)
		}
		for ; from < end; from++ {
			draws.Rows = append(draws.Rows, at)
			at++
		}
	}
	p.rows = draws.Rows
	return draws
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

// stream tells the operands of a model apart.
func (q *mxLinear) stream(o Operand, d mx.Direction) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, q.identity.layer, q.identity.linear, o, d)
	return h.Sum32()
}
