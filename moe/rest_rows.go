package moe

import (
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// restRows are the last rows of each expert in the passes so far, which do not fill a block. Their
// memory is allocated by the first step that needs it, and has room for one row less than a block.
type restRows struct {
	wgradRows         // group g has room for unit-1 rows
	unit      int32   // rows of a block
	counts    []int32 // rows of each group
	done      []int32 // rows of each group that are multiplied
	both      []int32 // memory of counts and done
}

// newRestRows returns no rows of some groups, in memory of an arena.
func newRestRows(a *tensor.Arena, unit, groups int, like wgradRows) *restRows {
	r := &restRows{unit: int32(unit), both: make([]int32, 2*groups)}
	r.counts, r.done = r.both[:groups], r.both[groups:]
	r.dy = a.New(like.dy.DType(), groups*(unit-1), like.dy.Dim(1))
	r.x = a.New(like.x.DType(), groups*(unit-1), like.x.Dim(1))
	return r
}

// messages yields the memory that holds the rows.
func (r *restRows) messages(yield func([]byte) bool) {
	_ = yield(intBytes(r.both)) && yield(r.dy.Bytes()) && yield(r.x.Bytes())
}

// wgradUnit returns the number of rows of an expert that are multiplied together, or a divisor of
// it: those of a block of the recipe, and of the kernels' sums.
func (l *linear) wgradUnit() int {
	if !l.mx.quantizesWgrad() {
		return format.MXBlock
	}
	dy, x := l.mx.Wgrad.Left.Format, l.mx.Wgrad.Right.Format
	return max(format.MXBlock, dy.Block[1], x.Block[1], dy.Hadamard)
}

// count returns the rows of a group. A nil rest has none.
func (r *restRows) count(group int) int32 {
	if r == nil {
		return 0
	}
	return r.counts[group]
}

// begin returns the first row of a group.
func (r *restRows) begin(group int) int {
	if r == nil {
		return 0
	}
	return group * int(r.unit-1)
}

// multiplied returns the rows of each group that are multiplied; nil: none are.
func (r *restRows) multiplied() []int32 {
	if r == nil {
		return nil
	}
	return r.done
}

// advance counts rows of groups that end at ends as multiplied.
func (r *restRows) advance(ends []int32) {
	if r == nil {
		return
	}
	last := int32(0)
	for g, end := range ends {
		r.done[g] += end - last
		last = end
	}
}

// reset drops the rows at the beginning of a step.
func (r *restRows) reset() {
	clear(r.counts)
	clear(r.done)
}
