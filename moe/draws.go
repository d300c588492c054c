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

	"spmoe/mx"
)

// Bits of a row's index from which on it holds the pass, if it does, and the expert.
const (
	passBit   = 32
	expertBit = 48
)

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

// stream tells the operands of a model apart.
func (q *mxLinear) stream(o Operand, d mx.Direction) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, q.identity.layer, q.identity.linear, o, d)
	return h.Sum32()
}
