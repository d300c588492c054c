package moe

// Deferred weight gradients of routed experts, which cover several passes of a step. If a pass
// gives an expert few rows, their product takes less time than reading and writing the FP32 sums
// that it is added to. So rows are saved over passes until there are enough of them, and then
// multiplied together.

import "spmoe/tensor"

// enoughRows is the average number of rows per expert that a deferred gradient waits for. The
// product then takes longer than the update of the sums, and the rows take a fraction of their
// memory.
const enoughRows = 128

// WgradPasses returns the number of passes that one weight gradient of the routed experts covers,
// if a step has that many. A pass has tokens tokens on all ranks together.
func (c Config) WgradPasses(tokens int) int {
	rows := tokens * c.TopK // of all experts of a layer
	if rows < 1 {
		return 1
	}
	return max((enoughRows*c.Experts+rows-1)/rows, 1)
}

// wgradRows are the operands of a layer's weight gradient: dy [rows, N] and x [rows, K] of the
// groups that end at ends.
type wgradRows struct {
	dy, x tensor.Tensor
	ends  []int32

	sealed [2]seal // dy and x, if they wait for another pass
}

// rowStore holds the rows of a step's passes whose gradients are not computed yet. Passes are
// planned in the order in which they begin, and store their rows in that order: see
// Pass.BackwardWeight.
type rowStore struct {
	tensor.Arena
	planned int                     // passes begun that leave their rows to the next one
	rows    map[*linear][]wgradRows // pass by pass
}

// plan decides, for a pass that begins, whether its weight gradients are deferred, and whether it
// computes them for itself and the passes that leave their rows to it. At most the given number of
// passes share a gradient.
func (r *rowStore) plan(leaving int, more bool, passes int) (gathered, due bool) {
	due = !more || leaving+1 >= passes
	gathered = !due || leaving > 0
	if r.planned = leaving + 1; due {
		r.planned = 0
	}
	return gathered, due
}

// clear drops all rows.
func (r *rowStore) clear() {
	for l := range r.rows {
		r.rows[l] = r.rows[l][:0]
	}
	r.Reset()
}

// save copies rows of a layer, since their pass ends before the gradient is computed.
func (r *rowStore) save(p phase, l *linear, rows wgradRows) {
	ex := p.ex
	kept := wgradRows{dy: r.copy(ex, rows.dy), x: r.copy(ex, rows.x), ends: r.Ints(len(rows.ends))}
	copy(kept.ends, rows.ends)
	kept.sealed = [2]seal{p.newSeal(kept.dy), p.newSeal(kept.x)}
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

// defersWgrad reports whether the weight gradients of groups of rows are deferred.
func (p phase) defersWgrad(ends []int32) bool { return ends != nil && p.deferred }

// deferWgrad saves the rows that this pass contributes to the weight's gradient or, if this pass
// computes it, adds the gradient of these rows and all saved ones.
func (l *linear) deferWgrad(p phase, s *linearState) {
	store := &p.model.rowStore
	rows := wgradRows{dy: s.dy.Tensor, x: s.x.Tensor, ends: s.x.ends}
	if !p.flush {
		store.save(p, l, rows)
		return
	}
	store.add(l, rows)
	if l.host != nil {
		l.host.addExperts(l, store.rows[l])
		return
	}
	l.concatenatedWgrad(p, store.rows[l], 0, len(rows.ends))
	p.sealGrad(&l.weight)
	p.verifyRows(store.rows[l])
}

// verifyRows compares the seals of rows that waited for a later pass.
func (p phase) verifyRows(passes []wgradRows) {
	for i := range passes {
		p.verify(passes[i].sealed[:])
	}
}

// concatenatedWgrad adds the gradient of groups [lo, hi), which are those that this rank computes,
// over the rows of all parts.
func (l *linear) concatenatedWgrad(p phase, parts []wgradRows, lo, hi int) {
	ex := p.ex
	mark := ex.Mark()
	defer ex.Release(mark)
	all := concatenate(ex, parts, lo, hi)
	groups := rowGroups{ends: all.ends, first: lo}
	dy, x := activation{Tensor: all.dy, rowGroups: groups}, activation{Tensor: all.x, rowGroups: groups}
	if l.mx.quantizesWgrad() {
		l.mx.quantizeDeferred(p, Gradient, l.mx.Wgrad.Left, &dy)
		l.mx.quantizeDeferred(p, Input, l.mx.Wgrad.Right, &x)
	}
	l.wgrad(ex, &dy, &x, 0)
}

// concatenate returns the rows of all parts for groups [lo, hi), group by group, those of a group
// in the order of the parts.
func concatenate(ex *tensor.Exec, parts []wgradRows, lo, hi int) wgradRows {
	first := parts[0]
	ends := ex.Ints(hi - lo)
	rows := int32(0)
	for i := range ends {
		for _, p := range parts {
			from, end := p.group(lo + i)
			rows += int32(end - from)
		}
		ends[i] = rows
	}
	n, k := first.dy.Dim(1), first.x.Dim(1)
	all := wgradRows{dy: ex.New(first.dy.DType(), int(rows), n), x: ex.New(first.x.DType(), int(rows), k), ends: ends}
	tensor.Parallel(ex, len(ends), int(rows)*(n+k), concatenation{parts, lo, all}, concatenateGroups)
	return all
}

// concatenation holds the arguments of concatenateGroups.
type concatenation struct {
	parts []wgradRows
	first int // the group of parts that is group 0 of all
	all   wgradRows
}

// concatenateGroups copies groups [lo, hi) of the result.
func concatenateGroups(_ *tensor.Exec, c concatenation, lo, hi int) {
	for g := lo; g < hi; g++ {
		to, _ := c.all.group(g)
		for _, p := range c.parts {
			from, end := p.group(c.first + g)
			next := to + end - from
			tensor.CopyStreaming(rowBytes(c.all.dy, to, next), rowBytes(p.dy, from, end))
			tensor.CopyStreaming(rowBytes(c.all.x, to, next), rowBytes(p.x, from, end))
			to = next
		}
	}
	tensor.StreamingFence()
}

// rowBytes returns rows [lo, hi) of a matrix as bytes.
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
