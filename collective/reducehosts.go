package collective

// Reductions over hosts. Every element belongs to one rank. Each host reduces it over its own ranks
// and sends the result to that rank, which combines the hosts' results. The network carries every
// element once from every host. Pieces of a part are reduced while others travel.

import "unsafe"

const (
	mostPiece  = 256 << 10 // bytes of a part that travel together
	leastPiece = 16 << 10
	// bytes for the pieces of all hosts, unless that makes them smaller than leastPiece
	mostRoom = 4 << 20
)

// hostReduction is the memory of a reduction over hosts. It has two pieces per peer, used in
// turns: one travels while the other is reduced.
type hostReduction struct {
	piece     int // bytes of one piece
	room      []byte
	out, in   [2]*Messages
	hostTerms [][]byte // by host
	sendsTo   []int    // ranks of other hosts whose proxy this rank is
}

// overHosts returns the memory for reductions. This rank sends pieces to the ranks whose proxy it
// is.
func (c *Comm) overHosts(kind Kind) *hostReduction {
	g := c.group
	p := c.pieces
	if p == nil {
		p = &hostReduction{hostTerms: make([][]byte, len(g.hosts))}
		for i := range 2 {
			p.out[i], p.in[i] = c.NewMessages(kind), c.NewMessages(kind)
		}
		for h, ranks := range g.hosts {
			for _, j := range ranks {
				if h != g.here && g.proxy(g.here, j) == c.rank {
					p.sendsTo = append(p.sendsTo, j)
				}
			}
		}
		buffers := 2 * (len(p.sendsTo) + len(g.hosts))
		p.piece = max(leastPiece, min(mostPiece, mostRoom/buffers)) / lineBytes * lineBytes
		p.room = c.Allocator().Allocate(buffers * p.piece)
		c.pieces = p
	}
	for i := range 2 {
		p.out[i].kind, p.in[i].kind = kind, kind
	}
	return p
}

// outgoing returns the memory for a piece to the i-th rank whose proxy this is, and incoming that
// for a piece of a host.
func (p *hostReduction) outgoing(turn, i int) []byte {
	return p.room[(turn*len(p.sendsTo)+i)*p.piece:][:p.piece]
}

func (p *hostReduction) incoming(turn, host int) []byte {
	return p.room[(2*len(p.sendsTo)+turn*len(p.hostTerms)+host)*p.piece:][:p.piece]
}

// reduceParts reduces the part of every rank over all hosts, and passes this rank's part to store,
// block by block.
func reduceParts[T Number](c *Comm, kind Kind, op Op, part func(j int) (lo, hi int), store func(lo int, block []T)) error {
	g, p, size := c.group, c.overHosts(kind), elemSize[T]()
	step := p.piece / size
	lo, hi := part(c.rank)
	pieces := (hi - lo + step - 1) / step
	for _, j := range p.sendsTo {
		lo, hi := part(j)
		pieces = max(pieces, (hi-lo+step-1)/step)
	}
	for i := 0; i <= pieces; i++ {
		if turn := i % 2; i < pieces {
			if err := p.out[turn].Wait(); err != nil {
				return err
			}
			begin, end := min(lo+i*step, hi), min(lo+(i+1)*step, hi)
			for h := range g.hosts {
				if h != g.here {
					p.in[turn].Recv(g.proxy(h, c.rank), p.incoming(turn, h)[:(end-begin)*size])
				}
			}
			for k, j := range p.sendsTo {
				lo, hi := part(j)
				begin, end := min(lo+i*step, hi), min(lo+(i+1)*step, hi)
				reduceLocal(c, elements[T](p.outgoing(turn, k), 0, end-begin), begin, op)
				p.out[turn].Send(j, p.outgoing(turn, k)[:(end-begin)*size])
			}
		}
		if i == 0 {
			continue
		}
		turn := (i - 1) % 2
		if err := p.in[turn].Wait(); err != nil {
			return err
		}
		combine(c, p, turn, min(lo+(i-1)*step, hi), min(lo+i*step, hi), op, store)
	}
	for turn := range 2 {
		if err := p.out[turn].Wait(); err != nil {
			return err
		}
	}
	return nil
}

// reduceSent returns what a rank sends to other hosts in reduceParts: its host's sums of the parts
// of the ranks whose proxy it is. part returns the bytes of a rank's part.
func (c *Comm) reduceSent(part func(j int) int) (sent int) {
	g := c.group
	for j := range c.Size() {
		if !c.isLocal(j) && g.proxy(g.here, j) == c.rank {
			sent += part(j)
		}
	}
	return sent
}

// reduceLocal is reduceBlock of any length.
func reduceLocal[T Number](c *Comm, acc []T, lo int, op Op) {
	for block := blockBytes / elemSize[T](); len(acc) > 0; {
		n := min(block, len(acc))
		reduceBlock(c, acc[:n], lo, op)
		acc, lo = acc[n:], lo+n
	}
}

// combine reduces elements [begin, end) of this rank's part over the hosts, whose pieces have
// arrived.
func combine[T Number](c *Comm, p *hostReduction, turn, begin, end int, op Op, store func(lo int, block []T)) {
	g := c.group
	own, result := scratch[T](c), elements[T](p.incoming(turn, g.here), 0, min(p.piece, blockBytes)/elemSize[T]())
	for at := begin; at < end; {
		n := min(len(own), len(result), end-at)
		reduceBlock(c, own[:n], at, op)
		for h := range g.hosts {
			p.hostTerms[h] = bytesOf(elements[T](p.incoming(turn, h), at-begin, n))
		}
		p.hostTerms[g.here] = bytesOf(own[:n])
		reduceTerms(result[:n], p.hostTerms, 0, op)
		store(at, result[:n])
		at += n
	}
}

// reduceScatterHosts is ReduceScatter over hosts, after the ranks have entered.
func reduceScatterHosts[T Number](c *Comm, dst []T, counts []int, op Op) error {
	first := sum(counts[:c.rank])
	return reduceParts(c, KindReduceScatter, op, func(j int) (lo, hi int) {
		lo = sum(counts[:j])
		return lo, lo + counts[j]
	}, func(lo int, block []T) { copy(dst[lo-first:], block) })
}

// allReduceSent returns what a rank sends to other hosts in an all-reduce of n elements: as in
// reduceParts, and its part of the result once to each host.
func (c *Comm) allReduceSent(n, size int) int {
	part := func(j int) int {
		lo, hi := c.share(j, n, size)
		return (hi - lo) * size
	}
	return c.reduceSent(part) + (len(c.group.hosts)-1)*part(c.rank)
}

// allReduceHosts is AllReduce over hosts, after the ranks have entered. Every rank's part of the
// result goes to all buffers of its host, and to its proxy on every other host, which does the same
// there. Only the proxy has read that part of its host's buffers.
func allReduceHosts[T Number](c *Comm, n int, op Op) error {
	g, size := c.group, elemSize[T]()
	part := func(j int) (lo, hi int) { return c.share(j, n, size) }
	err := reduceParts(c, KindAllReduce, op, part, func(lo int, block []T) {
		for _, r := range g.locals() {
			copy(published[T](c, r, lo, len(block)), block)
		}
	})
	if err != nil {
		return err
	}
	own, p := c.peers[c.rank].bufs[0], c.pieces
	for _, j := range p.sendsTo {
		lo, hi := part(j)
		c.moved.Recv(j, own[lo*size:hi*size])
	}
	lo, hi := part(c.rank)
	for h := range g.hosts {
		if h != g.here {
			c.moved.Send(g.proxy(h, c.rank), own[lo*size:hi*size])
		}
	}
	c.moved.kind = KindAllReduce
	if err := c.moved.Wait(); err != nil {
		return err
	}
	for _, j := range p.sendsTo {
		lo, hi := part(j)
		for _, r := range g.locals() {
			if r != c.rank {
				copy(c.peers[r].bufs[0][lo*size:hi*size], own[lo*size:hi*size])
			}
		}
	}
	return nil
}

// reduceSmall is AllReduce of data that travels with the call.
func reduceSmall[T Number](c *Comm, buf []T, op Op) error {
	k := newCall(c, KindAllReduce, buf[:0])
	k.count, k.op, k.data = int64(len(buf)), op, bytesOf(buf)
	if op > Min {
		k.err = errOp(op)
	}
	err := c.enter(k)
	if err == nil && !c.group.dry {
		reduceCalls(c, buf, 0, c.group.hosts, op)
	}
	c.retire(KindAllReduce, sizeOf(buf))
	return err
}

// reduceCalls sets dst to the reduction of the elements from lo that travelled with the calls of
// the hosts' ranks.
func reduceCalls[T Number](c *Comm, dst []T, lo int, hosts [][]int, op Op) {
	if len(hosts) == 1 {
		var terms [MaxRanks][]byte
		for i, r := range hosts[0] {
			s := c.slot(r)
			terms[i] = s.payload[:s.payloadLen]
		}
		reduceTerms(dst, terms[:len(hosts[0])], lo, op)
		return
	}
	half := leftHalf(len(hosts))
	var right [sumPiece]T
	for at := 0; at < len(dst); at += sumPiece {
		left := dst[at:min(at+sumPiece, len(dst))]
		reduceCalls(c, left, lo+at, hosts[:half], op)
		reduceCalls(c, right[:len(left)], lo+at, hosts[half:], op)
		both := [2][]byte{bytesOf(left), bytesOf(right[:len(left)])}
		reduceTerms(left, both[:], 0, op)
	}
}

var _ = [1]struct{}{}[unsafe.Offsetof(slot{}.payload)%8] // for any element type
