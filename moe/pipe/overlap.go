package pipe

// Overlapped pairs: the exchange of one action runs under the products of the other.

import (
	"slices"

	"spmoe/collective/pipeline"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// overlaps reports whether the actions of a slot can overlap. Those of one stage cannot, because
// they make their calls on the same communicators.
func overlaps(s pipeline.Slot) bool { return s.IsPair() && s[0].Stage != s[1].Stage }

// Overlaps reports whether some pairs of the schedule overlap, if a stage has that many ranks. A
// single rank exchanges nothing.
func (p *Plan) Overlaps(ranks int) bool {
	return p.Overlap && ranks > 1 && slices.ContainsFunc(p.Schedule.Ranks, func(list []pipeline.Slot) bool { return slices.ContainsFunc(list, overlaps) })
}

// overlapped runs a forward and a backward pass of two stages. They take turns: whenever one would
// wait for other ranks, the other one goes on. So each computes what it would alone.
//
// The second action begins when the messages of the first have come, which then takes the memory of
// its pass first, as in [Executor.serial].
func (e *Executor) overlapped(ex *tensor.Exec, slot pipeline.Slot) (failed pipeline.Action, err error) {
	if e.twin == nil {
		e.twin = ex.Twin()
	}
	if err := e.await(ex, slot[0]); err != nil {
		return slot[0], err
	}
	var errs [2]error
	task := func(i int, ex *tensor.Exec) func() {
		return func() { errs[i] = e.perform(ex, slot[i]) }
	}
	var other profile.Context // what the time of the other action counts for
	e.turns.Run(func(int) {
		other = ex.Profile.Resume(other)
	}, task(0, ex), task(1, e.twin))
	if errs[0] != nil {
		return slot[0], errs[0]
	}
	return slot[1], errs[1]
}
