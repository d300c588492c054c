package moe

import "spmoe/tensor"

// Weight gradients of routed experts, made for several passes of a step at once. Where a pass brings an expert few rows, their product
// takes less time than to read and write the FP32 sums that it is added to. So rows are kept from pass to pass until they are enough.

// enoughRows is how many rows an expert should have on average when its gradient is made: the product then takes longer than the sums,
// and the rows a fraction of their memory.
const enoughRows = 128

// GatheredPasses returns for how many passes, of so many tokens of all ranks together, weight gradients of routed experts are made at
// once, if a step has as many.
func (c Config) GatheredPasses(tokens int) int {
	rows := tokens * c.TopK // of all experts of a layer
	if rows < 1 {
		return 1
	}
	return max((enoughRows*c.Experts+rows-1)/rows, 1)
}

// gathering is the rows of a step's passes whose gradients are not made yet. Passes are planned in the order in which they
// begin, and leave their rows in that order: see Pass.BackwardWeight.
type gathering struct {
	tensor.Arena
	planned int                     // passes that leave rows for one that is still to begin
	rows    map[*linear][]wgradRows // pass by pass
}

// wgradRows is what a layer's weight gradient is the product of: dy [rows, N] and x [rows, K] of the groups that end at ends.
type wgradRows struct {
	dy, x tensor.Tensor
	ends  []int32
}

// planGathering says whether a pass that begins gathers rows with others, and whether it makes the gradients of all of them.
func (m *Model) planGathering(b Batch) (gathers, due bool) {
	g := &m.gathering
	due = !b.More || g.planned+1 >= m.Config.GatheredPasses(len(b.Inputs)*m.ranks)
	gathers = !due || g.planned > 0
	if g.planned++; due {
		g.planned = 0
	}
	return gathers, due
}

// reset forgets all rows.
func (g *gathering) reset() {
	for l := range g.rows {
		g.rows[l] = g.rows[l][:0]
	}
	g.Reset()
}

// gathers says whether the weight gradients of groups of rows are made of what several passes leave.
func (p phase) gathers(ends []int32) bool { return ends != nil && p.gathered }

// gather makes the weight's gradient of the rows of this pass and those kept before or, if it is not due yet, keeps the rows.
func (l *linear) gather(p phase, s *linearState) {
	ex, g := p.ex, &p.model.gathering
	rows := wgradRows{s.dy.Tensor, s.x.Tensor, s.x.ends}
	if !p.due {
		g.keep(ex, l, rows)
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	g.rows[l] = append(g.rows[l], rows)
	all := together(ex, g.rows[l])
	dy, x := activation{Tensor: all.dy, ends: all.ends}, activation{Tensor: all.x, ends: all.ends}
	if l.mx.quantisesWgrad() {
		l.mx.quantiseGathered(ex, Gradient, l.mx.Gradient, &dy)
		l.mx.quantiseGathered(ex, Input, l.mx.Format, &x)
	}
	l.wgrad(ex, &dy, &x, 0)
}

// keep copies the rows of a layer: the pass that they are of ends before their gradient is made.
func (g *gathering) keep(ex *tensor.Exec, l *linear, rows wgradRows) {
	kept := wgradRows{g.copy(ex, rows.dy), g.copy(ex, rows.x), g.New(tensor.INT32, len(rows.ends)).I32()}
	copy(kept.ends, rows.ends)
	if g.rows == nil {
		g.rows = map[*linear][]wgradRows{}
	}
	g.rows[l] = append(g.rows[l], kept)
}

func (g *gathering) copy(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	kept := g.New(x.DType(), x.Dim(0), x.Dim(1))
	tensor.Stash(ex, kept, x)
	return kept
}

// together returns the rows of all passes group by group, those of a group in the order of the passes.
func together(ex *tensor.Exec, passes []wgradRows) wgradRows {
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
	tensor.Parallel(ex, len(ends), rows*(n+k), joining{passes, all}, joinGroups)
	return all
}

// joining is the arguments of together's parts.
type joining struct {
	passes []wgradRows
	all    wgradRows
}

// joinGroups does groups [lo, hi).
func joinGroups(ex *tensor.Exec, j joining, lo, hi int) {
	for g := lo; g < hi; g++ {
		to, _ := j.all.group(g)
		for _, p := range j.passes {
			from, end := p.group(g)
			next := to + end - from
			tensor.CopyStreaming(rowBytes(j.all.dy, to, next), rowBytes(p.dy, from, end))
			tensor.CopyStreaming(rowBytes(j.all.x, to, next), rowBytes(p.x, from, end))
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
