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
	multiply := func(p phase, parts []wgradRows, lo, hi int) { s.store.wgrad(p, l, parts, lo, hi) }
	if s.peers != nil {
		s.peers.waiting = append(s.peers.waiting, wgrad{layer: l, rows: s.store.rows[l], multiply: multiply})
		return
	}
	multiply(p, s.store.rows[l], 0, len(rows.ends))
	p.pushGrad(&l.weight)
}

// wgrad adds the gradient of groups [lo, hi), which are those that this rank computes, over the
// rows of all parts.
func (r *rowStore) wgrad(p phase, l *linear, parts []wgradRows, lo, hi int) {
	ex := p.ex
	mark := ex.Mark()
	defer ex.Release(mark)
	rest := r.restOf(p, l, parts[0], hi-lo)
	all := concatenate(ex, parts, lo, hi, rest, p.batch.More)
	groups := rowGroups{ends: all.ends, first: lo, before: rest.multiplied()}
	dy, x := activation{Tensor: all.dy, rowGroups: groups}, activation{Tensor: all.x, rowGroups: groups}
	if l.mx.quantizesWgrad() {
		l.mx.quantizeDeferred(p, Gradient, l.mx.Wgrad.Left, &dy)
		l.mx.quantizeDeferred(p, Input, l.mx.Wgrad.Right, &x)
	}
	l.wgrad(p, &dy, &x, 0)
	rest.advance(all.ends)
}

// concatenate returns the rows of rest and then those of all parts for groups [lo, hi), group by
// group, those of a group in the order of the parts. If more rows follow in later passes, each
// group has whole blocks, and the other rows become the rest.
func concatenate(ex *tensor.Exec, parts []wgradRows, lo, hi int, rest *restRows, more bool) wgradRows {
	c := concatenation{parts: parts, first: lo, rest: rest, left: make([]int32, hi-lo)}
	c.all.ends = ex.Ints(hi - lo)
	rows := int32(0)
	for i := range c.left {
		n := rest.count(i)
		for _, p := range parts {
			from, end := p.group(lo + i)
			n += int32(end - from)
		}
		if more {
			c.left[i] = n % rest.unit
		}
		rows += n - c.left[i]
		c.all.ends[i] = rows
	}
	first := parts[0]
	n, k := first.dy.Dim(1), first.x.Dim(1)
	c.all.dy, c.all.x = ex.New(first.dy.DType(), int(rows), n), ex.New(first.x.DType(), int(rows), k)
	tensor.Parallel(ex, len(c.left), int(rows)*(n+k), c, concatenateGroups)
	if rest != nil {
		copy(rest.counts, c.left)
	}
	return c.all
}

// concatenation holds the arguments of concatenateGroups.
type concatenation struct {
	parts []wgradRows
	first int // the group of parts that is group 0 of all
	all   wgradRows
	rest  *restRows
	left  []int32 // rows of each group that become the rest
}

// concatenateGroups copies groups [lo, hi) of the result.
func concatenateGroups(_ *tensor.Exec, c concatenation, lo, hi int) {
	for g := lo; g < hi; g++ {
		to, end := c.all.group(g)
		left := int(c.rest.count(g)) // rows that stay, or become the rest
		if to < end && left > 0 {
			c.all.copy(to, &c.rest.wgradRows, c.rest.begin(g), left)
			to, left = to+left, 0
		}
		for _, p := range c.parts {
			from, last := p.group(c.first + g)
			n := min(last-from, end-to)
			c.all.copy(to, &p, from, n)
			to, from = to+n, from+n
			if n := last - from; n > 0 {
				c.rest.copy(c.rest.begin(g)+left, &p, from, n)
				left += n
			}
		}
	}
	tensor.StreamingFence()
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
		unit := l.wgradUnit()
		rest = &restRows{unit: int32(unit), counts: make([]int32, groups), done: make([]int32, groups)}
		rows := groups * (unit - 1)
		if r.rest == nil {
			r.rest, r.rests = map[*linear]*restRows{}, p.ex.NewArena(0)
		}
		rest.dy = r.rests.New(like.dy.DType(), rows, like.dy.Dim(1))
		rest.x = r.rests.New(like.x.DType(), rows, like.x.Dim(1))
		r.rest[l] = rest
	}
	return rest
}
