package moe

// The random numbers of stochastic rounding. That of an element depends on its place in the global
// batch and not on the rank that has it, so codes have the same bits in every layout. The place of
// a token is its pass and its row among those of all ranks. That of an expert's row is the expert,
// the pass, and the row among those of all replicas.

import (
	"fmt"
	"hash/fnv"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor/profile"
)

// Bits of a row's index from which on it holds the pass, and the expert.
const (
	passBit   = 32
	expertBit = 48
)

// locate counts the rows of earlier ranks in this pass, if the precision draws random numbers. It
// is collective.
func (p phase) locate() error {
	m := p.model
	if p.earlier = 0; m.mesh.Operands == nil || !m.precision.draws() {
		return nil
	}
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	c := m.mesh.Operands
	mine, all := [1]int64{int64(len(p.batch.Inputs))}, make([]int64, c.Size())
	if err := collective.AllGather(c, all, mine[:]); err != nil {
		return fmt.Errorf("counting the tokens of ranks: %w", err)
	}
	for _, n := range all[:c.Rank()] {
		p.earlier += uint64(n)
	}
	return nil
}

// draws names the random numbers for an operand, if its cast needs them.
func (q *mxLinear) draws(p phase, o Operand, d mx.Direction, by mx.Cast, a *activation) mx.Draws {
	if by.Rounding != mx.Stochastic || p.ex.Dry() {
		return mx.Draws{}
	}
	draws := mx.Draws{Seed: p.batch.Seed, Step: p.batch.Step, Stream: q.stream(o, d)}
	pass := uint64(p.place) << passBit
	if a.ends == nil {
		draws.First = pass + p.earlier
		return draws
	}
	draws.Rows = p.rows[:0]
	from := int32(0)
	for g, end := range a.ends {
		at := uint64(q.firstExpert+a.first+g)<<expertBit + pass
		if len(a.before) > 0 {
			at += uint64(a.before[g])
		}
		for ; from < end; from++ {
			draws.Rows = append(draws.Rows, at)
			at++
		}
	}
	p.rows = draws.Rows
	return draws
}

// stream tells the operands of a model apart.
func (q *mxLinear) stream(o Operand, d mx.Direction) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, q.identity.layer, q.identity.linear, o, d)
	return h.Sum32()
}
