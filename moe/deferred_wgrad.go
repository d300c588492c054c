package moe

// Weight gradients of routed experts in a step of several passes. The gradient of an expert is one
// chain of sums over its rows, in the order of the global batch. It goes on from pass to pass,
// since an FP32 gradient holds a partial sum exactly. Only whole blocks of rows are multiplied
// before the last pass, because kernels and formats work in blocks. The rest waits (restRows). So
// the bits depend neither on the number of passes nor on when rows are multiplied.
//
// If a pass gives an expert few rows, their product takes less time than reading and writing the
// FP32 sums that it is added to. So rows are saved over passes until there are enough of them, and
// then multiplied together.

import (
	"math"

	"spmoe/tensor"
)

// enoughRows is the average number of rows per expert that a deferred gradient waits for. The
// product then takes longer than the update of the sums, and the rows take a fraction of their
// memory.
const enoughRows = 128

// WgradPasses returns the number of passes that one product for the weight gradients of the routed
// experts covers, if a step has that many. A pass has tokens tokens on all ranks together. A
// product covers all passes if a later one could not go on with its sums.
func (c Config) WgradPasses(p Precision, tokens int) int {
	rows := tokens * c.TopK // of all experts of a layer
	switch {
	case !p.continuesSums():
		return math.MaxInt32
	case rows < 1:
		return 1
	}
	return max((enoughRows*c.Experts+rows-1)/rows, 1)
}

// rowStore holds the rows of a step's passes that are not multiplied yet. Passes store their rows
// in the order of their places: see Pass.BackwardWeight.
type rowStore struct {
	tensor.Arena
	rows  map[*linear][]wgradRows // pass by pass
	rest  map[*linear]*restRows
	rests *tensor.Arena // of rest; nil: there is none yet
}

// clear drops all rows.
func (r *rowStore) clear() {
	for l := range r.rows {
		r.rows[l] = r.rows[l][:0]
	}
	r.Reset()
}

// reset drops all rows, at the beginning of a step.
func (r *rowStore) reset() {
	r.clear()
	for _, rest := range r.rest {
		rest.reset()
	}
}

// bytes returns the memory of rows: the most of those of passes, and that of rests.
func (r *rowStore) bytes() int {
	if r.rests == nil {
		return r.Peak()
	}
	return r.Peak() + r.rests.Peak()
}

// save copies rows of a layer, since their pass ends before the gradient is computed.
func (r *rowStore) save(p phase, l *linear, rows wgradRows) {
	ex := p.ex
	kept := wgradRows{dy: r.copy(ex, rows.dy), x: r.copy(ex, rows.x), ends: r.Ints(len(rows.ends))}
	copy(kept.ends, rows.ends)
	r.add(l, kept)
}

func (r *rowStore) add(l *linear, rows wgradRows) {
	if r.rows == nil {
		r.rows = map[*linear][]wgradRows{}
	}
	r.rows[l] = append(r.rows[l], rows)
}

func (r *rowStore) copy(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	kept := r.New(x.DType(), x.Dim(0), x.Dim(1))
	tensor.StreamCopy(ex, kept, x)
	return kept
}

// rowSums sums the gradients of routed experts. One product gives that of a pass, or of many.
type rowSums struct {
	store *rowStore
	peers *host // the ranks that have replicas of the experts; nil: this one alone has them
}

// add saves the rows that this pass contributes to the weight's gradient or, if this pass
// multiplies, adds the gradient of these rows and all saved ones. In a step of one pass, it
// multiplies at once.
func (s *rowSums) add(p phase, l *linear, state *linearState) {
	if !p.deferred {
		l.mx.completeInput(p, state.x)
		l.wgrad(p, &state.dy, state.x, 0)
		p.pushGrad(&l.weight)
		return
	}
	rows := wgradRows{dy: state.dy.Tensor, x: state.x.Tensor, ends: state.x.ends}
	if !p.multiplies {
		s.store.save(p, l, rows)
		return
	}
	s.store.add(l, rows)
	if s.peers != nil {
		s.peers.waiting = append(s.peers.waiting, wgrad{layer: l, rows: s.store.rows[l]})
		return
	}
	s.store.wgrad(p, l, s.store.rows[l], 0, len(rows.ends))
	p.pushGrad(&l.weight)
}

// wgrad adds the gradient of groups [lo, hi), which are those that this rank computes, over the
// rows of all parts.
func (r *rowStore) wgrad(p phase, l *linear, parts []wgradRows, lo, hi int) {
	ex := p.ex
	mark := ex.Mark()
	defer ex.Release(mark)
	rest := r.restOf(p, l, parts[0], hi-lo)
	var after *restRows
	if p.batch.More {
		after = rest
	}
	c := concatenate(ex, parts, lo, hi, rest, after)
	c.copy(ex, false)
	if after != nil {
		c.copy(ex, true)
	}
	dy, x := l.wgradOperands(p, c.all, lo, rest.multiplied())
	l.wgrad(p, &dy, &x, 0)
	rest.advance(c.all.ends)
}

// wgradOperands returns rows as operands of a product. first is the number of their first group,
// and before the rows of each group that are multiplied.
func (l *linear) wgradOperands(p phase, rows wgradRows, first int, before []int32) (dy, x activation) {
	groups := rowGroups{ends: rows.ends, first: first, before: before}
	dy, x = activation{Tensor: rows.dy, rowGroups: groups}, activation{Tensor: rows.x, rowGroups: groups}
	if l.mx.quantizesWgrad() {
		l.mx.quantizeDeferred(p, Gradient, l.mx.Wgrad.Left, &dy)
		l.mx.quantizeDeferred(p, Input, l.mx.Wgrad.Right, &x)
	}
	return dy, x
}

// concatenation has the rows of some groups, one group after the other: first those that were left
// before, and then those of each part.
type concatenation struct {
	parts         []wgradRows
	first         int       // the group of parts that is group 0 of all
	before, after *restRows // what was left, and what is left; nil: nothing
	all           wgradRows // the other rows
	left          []int32   // rows of each group in after
}

// concatenate returns the rows of groups [lo, hi), which are not copied yet. If rows follow, after
// is not nil, and all has whole blocks. after may be before.
func concatenate(ex *tensor.Exec, parts []wgradRows, lo, hi int, before, after *restRows) concatenation {
	c := concatenation{
		parts:  parts,
		first:  lo,
		before: before,
		after:  after,
		left:   make([]int32, hi-lo),
	}
	c.all.ends = ex.Ints(hi - lo)
	rows := int32(0)
	for i := range c.left {
		n := before.count(i)
		for _, p := range parts {
			from, end := p.group(lo + i)
			n += int32(end - from)
		}
		if after != nil {
			c.left[i] = n % after.unit
		}
		rows += n - c.left[i]
		c.all.ends[i] = rows
	}
	dy, x := parts[0].dy, parts[0].x
	c.all.dy, c.all.x = ex.New(dy.DType(), int(rows), dy.Dim(1)), ex.New(x.DType(), int(rows), x.Dim(1))
	return c
}

// copy copies the rows of all or, with rests, those that are left. If after is before, these are
// copied last.
func (c concatenation) copy(ex *tensor.Exec, rests bool) {
	tensor.Parallel(ex, len(c.left), c.all.dy.Len()+c.all.x.Len(), c, func(_ *tensor.Exec, c concatenation, lo, hi int) {
		for g := lo; g < hi; g++ {
			if from, end := c.all.group(g); rests {
				c.copyGroup(&c.after.wgradRows, c.after.begin(g), g, end-from, int(c.left[g]))
			} else {
				c.copyGroup(&c.all, from, g, 0, end-from)
			}
		}
		tensor.StreamingFence()
	})
	if rests {
		copy(c.after.counts, c.left)
	}
}

// copyGroup copies n rows of group g to row at and those after it, without the first rows.
func (c concatenation) copyGroup(to *wgradRows, at, g, without, n int) {
	take := func(from *wgradRows, lo, hi int) {
		lo, without = lo+min(without, hi-lo), without-min(without, hi-lo)
		count := min(hi-lo, n)
		to.copy(at, from, lo, count)
		at, n = at+count, n-count
	}
	if begin := c.before.begin(g); c.before != nil {
		take(&c.before.wgradRows, begin, begin+int(c.before.count(g)))
	}
	for i := range c.parts {
		lo, hi := c.parts[i].group(c.first + g)
		take(&c.parts[i], lo, hi)
	}
}

// copy copies n rows of from, beginning with row first, to row at and those after it.
func (r *wgradRows) copy(at int, from *wgradRows, first, n int) {
	if n > 0 {
		tensor.CopyStreaming(rowBytes(r.dy, at, at+n), rowBytes(from.dy, first, first+n))
		tensor.CopyStreaming(rowBytes(r.x, at, at+n), rowBytes(from.x, first, first+n))
	}
}

// restOf returns the rows of a layer that earlier passes of the step have left over, of some groups
// of rows like those given. It is nil if the step has one pass.
func (r *rowStore) restOf(p phase, l *linear, like wgradRows, groups int) *restRows {
	rest := r.rest[l]
	if rest == nil && p.batch.More {
		if r.rest == nil {
			r.rest, r.rests = map[*linear]*restRows{}, p.ex.NewArena(0)
		}
		rest = newRestRows(r.rests, l.wgradUnit(), groups, like)
		r.rest[l] = rest
	}
	return rest
}
