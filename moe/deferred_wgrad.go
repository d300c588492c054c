package moe

// Deferred weight gradients of routed experts, which cover several passes of a step. If a pass
// gives an expert few rows, their product takes less time than reading and writing the FP32 sums
// that it is added to. So rows are saved over passes until there are enough of them, and then
// multiplied together.

import (
	"fmt"

	"spmoe/tensor"
)

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
	planned int                     // passes begun that leave their rows to a later pass
	rows    map[*linear][]wgradRows // pass by pass
}

// plan decides, for a pass that begins, whether its weight gradients are deferred, and whether it
// computes them for all passes since the last time. At most the given number of passes share a
// gradient.
func (r *rowStore) plan(more bool, passes int) (gathered, due bool) {
	due = !more || r.planned+1 >= passes
	gathered = !due || r.planned > 0
	if r.planned++; due {
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
	kept := wgradRows{dy: r.copy(ex, rows.dy), x: r.copy(ex, rows.x), ends: r.New(tensor.INT32, len(rows.ends)).I32()}
	copy(kept.ends, rows.ends)
	if p.sealed {
		kept.sealed = [2]seal{newSeal(ex, kept.dy.Bytes()), newSeal(ex, kept.x.Bytes())}
	}
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

// rowBuffers is the number of buffers in which peers read rows: dy, x and the ends of the groups.
const rowBuffers = 3

// buffers appends the memory that peers read.
func (r *wgradRows) buffers(ex *tensor.Exec, to [][]byte) [][]byte {
	ends := ex.New(tensor.INT32, len(r.ends)) // the rows' own may be memory that peers cannot read
	copy(ends.I32(), r.ends)
	return append(to, r.dy.Bytes(), r.x.Bytes(), ends.Bytes())
}

// of returns the rows of a peer, from its buffers. It returns false if they do not fit together.
func (r *wgradRows) of(ex *tensor.Exec, list [][]byte) (peer wgradRows, ok bool) {
	dy, x := r.dy.Dim(1)*r.dy.DType().Size(), r.x.Dim(1)*r.x.DType().Size()
	rows := len(list[0]) / dy
	if len(list[0]) != rows*dy || len(list[1]) != rows*x || len(list[2]) != 4*len(r.ends) {
		return peer, false
	}
	ends := ex.New(tensor.INT32, len(r.ends)) // a copy, because a faulty peer may change its own
	copy(ends.Bytes(), list[2])
	peer.ends = ends.I32()
	last := int32(0)
	for _, end := range peer.ends {
		if end < last {
			return peer, false
		}
		last = end
	}
	peer.dy, peer.x = rowTensor(list[0], r.dy.DType(), rows, r.dy.Dim(1)), rowTensor(list[1], r.x.DType(), rows, r.x.Dim(1))
	return peer, int(last) == rows
}

// rowTensor returns memory as a matrix, which may have no rows.
func rowTensor(b []byte, dtype tensor.DType, rows, cols int) tensor.Tensor {
	if rows == 0 {
		return tensor.New(dtype, 0, cols)
	}
	return tensor.FromBytes(b, dtype, rows, cols)
}

// rowsRead returns the bytes that computeExperts reads: the rows of this rank's experts.
func (w wgrad) rowsRead(lists [][][]byte, at, n int) (sum int) {
	l, height := w.layer, w.layer.W.Dim(1) // rows of an expert's weight
	size := w.rows[0].dy.Dim(1)*w.rows[0].dy.DType().Size() + w.rows[0].x.Dim(1)*w.rows[0].x.DType().Size()
	for _, list := range lists {
		for i := at; i < at+n; i += rowBuffers {
			r := wgradRows{ends: tensor.FromBytes(list[i+2], tensor.INT32, len(list[i+2])/4).I32()}
			lo, _ := r.group(l.rows[0] / height)
			_, hi := r.group(l.rows[1]/height - 1)
			sum += (hi - lo) * size
		}
	}
	return sum
}

// computeExperts computes the gradients of this rank's share of the experts from the rows of all
// their replicas: lists has the buffers of each rank, from number at on. The rows of a pass have
// the order of the ranks, and passes follow each other, as on a single rank.
func (w wgrad) computeExperts(p phase, lists [][][]byte, at int) error {
	l, parts := w.layer, make([]wgradRows, 0, len(w.rows)*len(lists))
	for i := range w.rows {
		for r, list := range lists {
			part, ok := w.rows[i].of(p.ex, list[at+i*rowBuffers:][:rowBuffers])
			if !ok {
				return fmt.Errorf("the rows of rank %d do not fit", r)
			}
			parts = append(parts, part)
		}
	}
	if n := l.W.Dim(1); l.rows[0] < l.rows[1] {
		l.concatenatedWgrad(p, parts, l.rows[0]/n, l.rows[1]/n)
	}
	p.sealGrad(&l.weight)
	p.verifyRows(w.rows)
	return nil
}

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
		p.verifyAll(passes[i].sealed[:])
	}
}

// concatenatedWgrad adds the gradient of groups [lo, hi), which are those that this rank computes,
// over the rows of all parts.
func (l *linear) concatenatedWgrad(p phase, parts []wgradRows, lo, hi int) {
	ex := p.ex
	mark := ex.Mark()
	defer ex.Release(mark)
	all := concatenate(ex, parts, lo, hi)
	dy, x := activation{Tensor: all.dy, ends: all.ends}, activation{Tensor: all.x, ends: all.ends}
	if l.mx.quantizesWgrad() {
		l.mx.quantizeDeferred(ex, Gradient, l.mx.Wgrad.Left, &dy)
		l.mx.quantizeDeferred(ex, Input, l.mx.Wgrad.Right, &x)
	}
	l.wgrad(ex, &dy, &x, 0)
}

// concatenate returns the rows of all parts for groups [lo, hi), group by group, those of a group
// in the order of the parts.
func concatenate(ex *tensor.Exec, parts []wgradRows, lo, hi int) wgradRows {
	first := parts[0]
	ends := ex.New(tensor.INT32, hi-lo).I32()
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
