package ep

// The transport of packed rows to the experts' ranks and back: an all-to-all-v, and the reordering
// between the order on the wire (source rank, expert) and the order of the groups (expert, source
// rank).

import (
	"spmoe/collective"
	"spmoe/tensor"
)

// toOwners sends packed [Sent, H] and sets rows [Received, H] to what the peers sent, in group
// order.
func (s *Standard) toOwners(ex *tensor.Exec, h *Handle, rows, packed tensor.Tensor) error {
	if s.layout.Ranks == 1 { // packed order is group order
		copy(rows.Bytes(), packed.Bytes())
		return nil
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	wire := ex.New(rows.DType(), rows.Dim(0), rows.Dim(1))
	if err := s.exchange(wire, h.RecvCounts, packed, h.SendCounts); err != nil {
		return err
	}
	dst, src, size := rows.Bytes(), wire.Bytes(), rowBytes(rows)
	s.eachBlock(h, func(grouped, wired, n int) {
		copy(dst[grouped*size:], src[wired*size:][:n*size])
	})
	return nil
}

// toSources is the inverse of toOwners: it sends rows back and sets packed.
func (s *Standard) toSources(ex *tensor.Exec, h *Handle, packed, rows tensor.Tensor) error {
	if s.layout.Ranks == 1 {
		copy(packed.Bytes(), rows.Bytes())
		return nil
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	wire := ex.New(rows.DType(), rows.Dim(0), rows.Dim(1))
	dst, src, size := wire.Bytes(), rows.Bytes(), rowBytes(rows)
	s.eachBlock(h, func(grouped, wired, n int) {
		copy(dst[wired*size:], src[grouped*size:][:n*size])
	})
	return s.exchange(packed, h.SendCounts, wire, h.RecvCounts)
}

// eachBlock calls f for the rows of every pair of a source rank and an expert, with the index of
// the first row in group order and on the wire, and the number of rows.
func (s *Standard) eachBlock(h *Handle, f func(grouped, wired, n int)) {
	experts := s.layout.PerRank
	next := s.next[:experts]
	copy(next[1:], h.GroupEnds)
	next[0] = 0
	wired := 0
	for i, n := range h.blockRows {
		f(int(next[i%experts]), wired, int(n))
		next[i%experts] += n
		wired += int(n)
	}
}

// exchange is the all-to-all-v of rows. counts are rows from and to each rank. It moves bytes, so
// that one code serves every element type.
func (s *Standard) exchange(dst tensor.Tensor, recv []int, src tensor.Tensor, send []int) error {
	s.recv.set(recv, rowBytes(dst))
	s.send.set(send, rowBytes(src))
	return collective.AllToAllV(s.comm, dst.Bytes(), s.recv.counts, s.recv.displs, src.Bytes(), s.send.counts, s.send.displs)
}

// parts divides a buffer among the ranks, in bytes.
type parts struct{ counts, displs []int }

func newParts(ranks int) parts { return parts{make([]int, ranks), make([]int, ranks)} }

// set lays out the rows of every rank one after another.
func (p *parts) set(rows []int, rowBytes int) {
	at := 0
	for r, n := range rows {
		p.counts[r], p.displs[r] = n*rowBytes, at
		at += n * rowBytes
	}
}
