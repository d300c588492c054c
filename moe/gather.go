package moe

// Weight gradients of routed experts, made for several passes of a step at once. Where a pass
// brings an expert few rows, their product takes less time than to read and write the FP32 sums
// that it is added to. So rows are kept from pass to pass until they are enough, and multiplied
// together.

import "spmoe/tensor"

// enoughRows is how many rows an expert should have on average when its gradient is made: the
// product then takes longer than the sums, and the rows a fraction of their memory.
const enoughRows = 128

// GatheredPasses returns for how many passes weight gradients of routed experts are made at once,
// if a step has that many. A pass is of tokens tokens, of all ranks together.
func (c Config) GatheredPasses(tokens int) int {
	rows := tokens * c.TopK // of all experts of a layer
	if rows < 1 {
		return 1
	}
	return max((enoughRows*c.Experts+rows-1)/rows, 1)
}

// wgradRows is what a layer's weight gradient is the product of: dy [rows, N] and x [rows, K] of
// the groups that end at ends.
type wgradRows struct {
	dy, x tensor.Tensor
	ends  []int32
}

// rowStore holds the rows of a step's passes whose gradients are not made yet. Passes are planned
// in the order in which they begin, and leave their rows in that order: see Pass.BackwardWeight.
type rowStore struct {
	tensor.Arena
	planned int                     // passes begun that leave rows to one which is still to begin
	rows    map[*linear][]wgradRows // pass by pass
}

// plan says whether a pass that begins shares its gradients with others, and whether it is the one
// that makes them, of at most the given number of passes.
func (r *rowStore) plan(more bool, passes int) (gathered, due bool) {
	due = !more || r.planned+1 >= passes
	gathered = !due || r.planned > 0
	if r.planned++; due {
		r.planned = 0
	}
	return gathered, due
}

// clear forgets all rows.
func (r *rowStore) clear() {
	for l := range r.rows {
		r.rows[l] = r.rows[l][:0]
	}
	r.Reset()
}

// keep copies rows of a layer, since the pass that they are of ends before their gradient is made.
func (r *rowStore) keep(ex *tensor.Exec, l *linear, rows wgradRows) {
	kept := wgradRows{r.copy(ex, rows.dy), r.copy(ex, rows.x), r.New(tensor.INT32, len(rows.ends)).I32()}
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
	tensor.Stash(ex, kept, x)
	return kept
}

// gathers says whether the weight gradients of groups of rows are made for several passes at once.
func (p phase) gathers(ends []int32) bool { return ends != nil && p.gathered }

// gatherWeight keeps the rows that this pass gives the weight's gradient or, if it is due, makes
// the gradient of these and all that were kept before.
func (l *linear) gatherWeight(p phase, s *linearState) {
	ex, store := p.ex, &p.model.rowStore
	rows := wgradRows{s.dy.Tensor, s.x.Tensor, s.x.ends}
	if !p.due {
		store.keep(ex, l, rows)
		return
	}
	store.add(l, rows)
	mark := ex.Mark()
	defer ex.Release(mark)
	all := concatenate(ex, store.rows[l])
	dy, x := activation{Tensor: all.dy, ends: all.ends}, activation{Tensor: all.x, ends: all.ends}
	if l.mx.quantizesWgrad() {
		l.mx.quantizeGathered(ex, Gradient, l.mx.Wgrad.Left, &dy)
		l.mx.quantizeGathered(ex, Input, l.mx.Wgrad.Right, &x)
	}
	l.wgrad(ex, &dy, &x, 0)
}

// concatenate returns the rows of all passes group by group, those of a group in the order of the
// passes.
func concatenate(ex *tensor.Exec, passes []wgradRows) wgradRows {
	first := passes[0]
	ends := ex.New(tensor.INT32, len(first.ends)).I32()
	clear(ends)
	for _, p := range passes {
		for g, end := range p.ends {
			ends[g] += end
		}
	}
	rows, n, k := int(ends[len(ends)-1]), first.dy.Dim(1), first.x.Dim(1)
	all := wgradRows{ex.New(first.dy.DType(), rows, n), ex.New(first.x.DType(), rows, k), ends}
	tensor.Parallel(ex, len(ends), rows*(n+k), concatenation{passes, all}, concatenateGroups)
	return all
}

// concatenation is the arguments of concatenate's parts.
type concatenation struct {
	passes []wgradRows
	all    wgradRows
}

// concatenateGroups does groups [lo, hi).
func concatenateGroups(_ *tensor.Exec, c concatenation, lo, hi int) {
	for g := lo; g < hi; g++ {
		to, _ := c.all.group(g)
		for _, p := range c.passes {
			from, end := p.group(g)
			next := to + end - from
			tensor.CopyStreaming(rowBytes(c.all.dy, to, next), rowBytes(p.dy, from, end))
			tensor.CopyStreaming(rowBytes(c.all.x, to, next), rowBytes(p.x, from, end))
			to = next
		}
	}
	tensor.StreamingFence()
}

// rowBytes is rows [lo, hi) of a matrix.
func rowBytes(t tensor.Tensor, lo, hi int) []byte {
	size := t.Dim(1) * t.DType().Size()
	return t.Bytes()[lo*size : hi*size]
}

// group returns the rows of group g.
func (r *wgradRows) group(g int) (lo, hi int) {
	if g > 0 {
		lo = int(r.ends[g-1])
	}
	return lo, int(r.ends[g])
}
