package trainer

// What quantisation did to the operands of a step, summed up over its passes for the record.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor/profile"
)

// operand tells the operands of a step apart.
type operand struct {
	layer  int
	linear string
	kind   moe.Operand
}

// quantised is an operand's part on this rank.
type quantised struct {
	format mx.Format
	quantisation
}

// discard forgets the operands of the step under way, which is computed again.
func (c *recording) discard() { clear(c.operands) }

// watch makes the model show what it quantises, if that is to be disturbed or recorded.
func (r *rank) watch(recorded bool) {
	disturb := r.job.Disturb
	if disturb == nil && !recorded {
		r.model.ObserveQuantised(nil)
		return
	}
	r.model.ObserveQuantised(func(q moe.Quantised) {
		if disturb != nil && !q.Sent {
			disturb(q)
		}
		if recorded && !q.Again {
			r.recordOperand(q)
		}
	})
}

// recordOperand adds an operand to the sums of the step. What all ranks have is counted once, and what was sent is counted by its sender.
func (r *rank) recordOperand(q moe.Quantised) {
	defer r.ex.Enter(r.ex.Enter(profile.Rest)) // where the profile takes it out
	begin := time.Now()
	c, key := r.recording, operand{q.Layer, q.Linear, q.Operand}
	if c.operands[key] == nil {
		c.operands[key] = &quantised{format: q.Format}
	}
	if !q.Received && (q.Local || r.lead()) {
		c.operands[key].add(measure(r.ex, q))
	}
	c.spent += time.Since(begin)
}

// take returns the operands of the step, in the order of the record, which is that of all ranks, and forgets them.
func (c *recording) take() (keys []operand, sums []quantised) {
	for key := range c.operands {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b operand) int {
		return cmp.Or(cmp.Compare(a.layer, b.layer), strings.Compare(a.linear, b.linear), cmp.Compare(a.kind, b.kind))
	})
	for _, key := range keys {
		sums = append(sums, *c.operands[key])
	}
	clear(c.operands)
	return keys, sums
}
