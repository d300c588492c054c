package moe

// Gradients of experts with replicas on several hosts, if their sums move fewer bytes than rows. A
// gradient is one chain of sums over the rows of all replicas. So each host adds its own rows to
// the sums of the host before it and sends them on: once around the hosts for each pass. The ranks
// with one place on their hosts form a ring. Together they compute the rows of the gradients that
// they own.
//
// Sums travel in tiles: while a host adds to a tile, the next one adds to the tile before it. So
// with T tiles on H hosts, products take (T+H-1)/T times as long. Rows that do not fill a block of
// the kernels or of a format travel ahead of the tiles: see restRows.
//
// Between the products of a step, sums and such rows are on the first host. After the last product,
// the last host returns the sums to their owners.

import (
	"slices"

	"spmoe/tensor/profile"
)

// ring is a product of all gradients that wait, on this host.
type ring struct {
	*host
	p              phase
	at             int // this host
	previous, next int // ranks of its neighbors
	height         int // of a tile
	weights        []ringWeight
}

// ringWeight is the gradient of a weight on its way around the hosts.
type ringWeight struct {
	wgrad
	own           [2]int    // rows of the gradient that the ring computes
	first, groups int       // those that they belong to
	adds          bool      // there are sums of earlier rows
	before        *restRows // of earlier hosts and passes; nil: none
	arrived       int       // messages that have arrived when before has
	dy, x         []activation
}

// computeRing computes the gradients that wait, together with the other hosts. lists has the rows
// of this host's ranks. It returns the bytes of those that this rank reads.
func (h *host) computeRing(p phase, lists [][][]byte) (bytes int, err error) {
	n, at := len(h.ring), slices.Index(h.ring, h.comm.Rank())
	r := ring{
		host:     h,
		p:        p,
		at:       at,
		previous: h.ring[(at+n-1)%n],
		next:     h.ring[(at+1)%n],
		height:   wgradTile,
	}
	buffers, rows, passes := 0, 0, len(h.waiting[0].rows)
	for _, w := range h.waiting {
		one := ringWeight{wgrad: w, own: w.layer.rowsOf(h.ring)}
		first, end := experts(one.own, w.layer.W.Dim(1))
		one.first, one.groups = first, end-first
		if _, one.adds = w.layer.nextGrad(p); at == 0 {
			one.before = w.store().restOf(p, w.layer, w.rows[0], one.groups)
		}
		r.weights = append(r.weights, one)
		bytes += w.rowsRead(p.ex, lists, buffers, w.buffersLen(), one.own)
		buffers, rows = buffers+w.buffersLen(), rows+one.own[1]-one.own[0]
	}
	const filled = 4 // tiles per host, from which on the ring is as good as full
	if rows >= filled*n*leastWgradRows {
		r.height = leastWgradRows
	}
	for pass := range passes {
		if err := r.addPass(lists, pass, pass == passes-1 && !p.batch.More); err != nil {
			return bytes, err
		}
	}
	r.returnSums()
	for _, w := range h.waiting {
		p.pushGrad(&w.layer.weight)
	}
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	return bytes, h.received.Wait()
}

// addPass adds the rows of a pass. last says that no host has later ones.
func (r *ring) addPass(lists [][][]byte, pass int, last bool) error {
	receives, sends, buffers := r.at > 0 || pass > 0, r.at < len(r.ring)-1 || !last, pass*rowBuffers
	if receives {
		r.receive(func(w *ringWeight) *restRows {
			return newRestRows(&r.p.ex.Arena, w.layer.wgradUnit(), w.groups, w.rows[0])
		})
	}
	arrived := 0
	for i := range r.weights {
		w := &r.weights[i]
		arrived = w.arrived
		if err := r.await(arrived); err != nil {
			return err
		}
		parts := make([]wgradRows, 0, len(lists))
		for _, list := range lists {
			parts = append(parts, w.rows[pass].of(r.p.ex, list[buffers:][:rowBuffers]))
		}
		buffers += w.buffersLen()
		r.prepare(w, parts, sends)
	}
	for i := range r.weights {
		w := &r.weights[i]
		for tile := range r.tiles(w) {
			if receives {
				arrived++
				if err := r.await(arrived); err != nil {
					return err
				}
			}
			group, grad := tile[0]/w.layer.W.Dim(1)-w.first, w.layer.gradRows(tile)
			w.layer.wgradRows(r.p, grad, tile, &w.dy[group], &w.x[group], 0, w.adds)
			if sends {
				r.sent.Send(r.next, grad.Bytes())
			}
		}
	}
	defer r.p.ex.Enter(r.p.ex.Enter(profile.Collectives))
	return r.sent.Wait() // before other sums arrive in the same memory
}

// prepare makes the operands of a pass. If the host sends sums, it first sends the rows that the
// next host multiplies.
func (r *ring) prepare(w *ringWeight, parts []wgradRows, sends bool) {
	ex, after := r.p.ex, (*restRows)(nil)
	if sends {
		after = newRestRows(&ex.Arena, w.layer.wgradUnit(), w.groups, parts[0])
	}
	c := concatenate(ex, parts, w.first, w.first+w.groups, w.before, after)
	if sends {
		c.copy(ex, true)
		copy(after.done, w.before.multiplied())
		after.advance(c.all.ends)
		for b := range after.messages {
			r.sent.Send(r.next, b)
		}
	}
	c.copy(ex, false)
	w.dy, w.x = nil, nil
	for g := range w.groups {
		lo, hi := c.all.group(g)
		rows, done := wgradRows{c.all.dy.Slice(lo, hi), c.all.x.Slice(lo, hi), []int32{int32(hi - lo)}}, w.before.multiplied()
		dy, x := w.layer.wgradOperands(r.p, rows, w.first+g, done[min(g, len(done)):])
		w.dy, w.x = append(w.dy, dy), append(w.x, x)
	}
}

// receive starts to receive sums from the previous host, into Grad, and rows into new rests.
func (r *ring) receive(rest func(w *ringWeight) *restRows) {
	for i := range r.weights {
		w := &r.weights[i]
		w.before, w.adds = rest(w), true
		for b := range w.before.messages {
			r.received.Recv(r.previous, b)
		}
		w.arrived = r.received.Len()
	}
	for i := range r.weights {
		for tile := range r.tiles(&r.weights[i]) {
			r.received.Recv(r.previous, r.weights[i].layer.gradRows(tile).Bytes())
		}
	}
}

// returnSums moves sums to the first host or, after the last product of a step, to their owners.
func (r *ring) returnSums() {
	last := len(r.ring) - 1
	switch {
	case r.p.batch.More && r.at == 0:
		r.receive(func(w *ringWeight) *restRows { return w.store().rest[w.layer] })
	case r.p.batch.More:
	case r.at < last:
		for _, w := range r.weights {
			r.received.Recv(r.ring[last], w.layer.own().Bytes())
		}
	default:
		for _, w := range r.weights {
			for _, rank := range r.ring[:last] {
				r.sent.Send(rank, w.layer.gradRows(w.layer.shares[rank]).Bytes())
			}
		}
	}
}

// tiles yields the tiles of a gradient: rows of one group each.
func (r *ring) tiles(w *ringWeight) func(yield func([2]int) bool) {
	return func(yield func([2]int) bool) {
		height := w.layer.W.Dim(1)
		for lo, hi := w.own[0], 0; lo < w.own[1]; lo = hi {
			if hi = min(lo+r.height, (lo/height+1)*height, w.own[1]); !yield([2]int{lo, hi}) {
				return
			}
		}
	}
}

// await returns when the first n messages have arrived.
func (r *ring) await(n int) error {
	defer r.p.ex.Enter(r.p.ex.Enter(profile.Collectives))
	return r.received.WaitFirst(n)
}
