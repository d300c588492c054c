package moe

// Rows of experts whose replicas are on several hosts. Each rank computes the gradients of its
// share of the experts from the rows of all replicas, as on one host. Rows of replicas on its host
// are read in place. Those on other hosts send it theirs: the rows of an expert are contiguous, so
// each message is a part of an operand.
//
// Or the sums travel: see ring. Of an expert with R rows in a product on H hosts, whose weight is
// [N, K], all links together carry 2·R·(N+K)·(H-1)/H bytes of rows for each rank that computes a
// part of the gradient, and 4·N·K·(H-1) of sums for each pass. The first product of a run chooses
// what moves less. Rows fit recipes that cannot go on with a sum, and unequal hosts.

import (
	"spmoe/collective"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// newReplicas returns the ranks that have the experts of this one, on several hosts. goesOn says
// that a sum over rows can go on with that of earlier ones.
func newReplicas(m Mesh, goesOn bool) *host {
	h := &host{peers: newPeers(m.Replicas, m.ReplicasHost), order: everyRank(m.Replicas.Size())}
	if hosts := equalHosts(m.Replicas); hosts != nil && goesOn {
		h.ring = column(hosts, h.place(m.Replicas.Rank()))
	}
	if m.ReplicasAcross != nil { // ranks with the same place are neighbors
		h.order = nil
		for place := range m.ReplicasHost.Size() {
			for _, ranks := range m.Replicas.Hosts() {
				h.order = append(h.order, ranks[place])
			}
		}
	}
	return h
}

// openRows is open for the weights that wait, whose rows are in mine. If rows move, it returns
// those of this rank's share of the experts that ranks of other hosts have.
func (h *host) openRows(p phase, mine [][]byte) (o openBuffers, err error) {
	var ends [][]int32
	if h.ring == nil || !h.chosen {
		if ends, err = h.exchangeEnds(p); err != nil {
			return o, err
		}
	}
	if !h.chosen {
		h.choose(ends)
	}
	if h.ring != nil {
		o, err = h.window(p.ex, mine)
		o.sent = h.sent
		return o, err
	}
	return h.openParts(p.ex, mine, h.transferRows(p, ends))
}

// choose lets rows travel if that moves fewer bytes than sums. ends has those of the groups of rows
// of each rank.
func (h *host) choose(ends [][]int32) {
	h.chosen = true
	bytesOfRows, bytesOfSums, at := 0, 0, 0
	for _, w := range h.waiting {
		groups, computing := w.layer.W.Dim(0), 0
		for _, share := range w.layer.shares {
			computing += min(share[1]-share[0], 1)
		}
		for range w.rows {
			at += groups
			for _, theirs := range ends {
				bytesOfRows += int(theirs[at-1]) * w.rows[0].bytes() * max(computing/groups, 1)
			}
			bytesOfSums += 4 * w.layer.W.Len() * len(h.ring)
		}
	}
	if bytesOfSums >= bytesOfRows {
		h.ring = nil
	}
}

// exchangeEnds returns the ends of the groups of rows of each rank: those of each weight that
// waits, pass by pass.
func (h *host) exchangeEnds(p phase) (all [][]int32, err error) {
	defer p.ex.Enter(p.ex.Enter(profile.Collectives))
	n := 0
	for _, w := range h.waiting {
		n += len(w.rows) * len(w.rows[0].ends)
	}
	own := p.ex.New(tensor.INT32, n)
	flat := p.ex.New(tensor.INT32, n*h.comm.Size())
	if !p.ex.Dry() {
		at := own.I32()
		for _, w := range h.waiting {
			for _, r := range w.rows {
				at = at[copy(at, r.ends):]
			}
		}
	}
	if err := collective.AllGather(h.comm, flat.I32(), own.I32()); err != nil {
		return nil, err
	}
	for r := range h.comm.Size() {
		if all = append(all, nil); !p.ex.Dry() {
			all[r] = flat.I32()[r*n:][:n]
			continue
		}
		for _, w := range h.waiting {
			for _, rows := range w.rows {
				all[r] = append(all[r], rows.ends...)
			}
		}
	}
	return all, nil
}

// transferRows starts to send rows to the ranks of other hosts, and to receive theirs. It returns
// the lists of their buffers.
func (h *host) transferRows(p phase, ends [][]int32) [][][]byte {
	lists := make([][][]byte, h.comm.Size())
	for r := range lists {
		if h.isHere(r) {
			continue
		}
		theirs := ends[r]
		for _, w := range h.waiting {
			first, end := experts(w.layer.shares[r], w.layer.W.Dim(1))
			ownFirst, ownEnd := experts(w.layer.rows, w.layer.W.Dim(1))
			for _, rows := range w.rows {
				lo, hi := groupsOf(rows.ends, first, end)
				h.sent.Send(r, rowBytes(rows.dy, lo, hi))
				h.sent.Send(r, rowBytes(rows.x, lo, hi))
				n := len(rows.ends)
				lists[r] = append(lists[r], h.receiveRows(p, r, rows, theirs[:n], ownFirst, ownEnd)...)
				theirs = theirs[n:]
			}
		}
	}
	return lists
}

// receiveRows starts to receive the rows of experts [first, end) from another rank, whose groups of
// rows end at ends. It returns the buffers of a rank that has only these rows.
func (h *host) receiveRows(p phase, from int, like wgradRows, ends []int32, first, end int) [][]byte {
	lo, hi := groupsOf(ends, first, end)
	dy := p.ex.New(like.dy.DType(), hi-lo, like.dy.Dim(1))
	x := p.ex.New(like.x.DType(), hi-lo, like.x.Dim(1))
	h.received.Recv(from, dy.Bytes())
	h.received.Recv(from, x.Bytes())
	if p.ex.Dry() {
		return like.buffers(p.ex, nil)
	}
	part := wgradRows{dy: dy, x: x, ends: p.ex.Ints(len(ends))}
	for g, e := range ends {
		part.ends[g] = min(max(e-int32(lo), 0), int32(hi-lo))
	}
	return part.buffers(p.ex, nil)
}

// groupsOf returns the rows of groups [first, end), of groups that end at ends.
func groupsOf(ends []int32, first, end int) (lo, hi int) {
	if first == end {
		return 0, 0
	}
	if first > 0 {
		lo = int(ends[first-1])
	}
	return lo, int(ends[end-1])
}
