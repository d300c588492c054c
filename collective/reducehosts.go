package collective

// Reductions over hosts. Every element belongs to one rank. Each host reduces it over its own ranks
// and sends the result to that rank, which combines the hosts' results. The network carries every
// element once from every host. Pieces of a part are reduced while others travel.
//
// Sums are those of one host. A host whose ranks are no subtree of the tree over all ranks sends
// the sums of its largest subtrees: of r ranks, at most 2·log2(r).

import (
	"slices"
	"unsafe"
)

const (
	mostPiece  = 256 << 10 // bytes of a part that travel together
	leastPiece = 16 << 10
	// bytes for the pieces of all hosts, unless that makes them smaller than leastPiece
	mostRoom = 4 << 20
)

// hostReduction is the memory of a reduction over hosts. It has two pieces per peer, used in
// turns: one travels while the other is reduced.
type hostReduction struct {
	piece   int // bytes of one piece of a subtree
	room    []byte
	out, in [2]*Messages
	terms   [][]byte // by subtree
	sendsTo []int    // ranks of other hosts whose proxy this rank is
}

// overHosts returns the memory for reductions. This rank sends pieces to the ranks whose proxy it
// is.
func (c *Comm) overHosts(kind Kind) *hostReduction {
	g := c.group
	p := c.pieces
	if p == nil {
		p = &hostReduction{terms: make([][]byte, len(g.subtrees))}
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
		most := 0 // pieces that a rank sends; all hosts agree on this
		for h, ranks := range g.hosts {
			others := (c.Size() - 1) / len(ranks) // ranks of other hosts per rank of this one, rounded up
			most = max(most, others*len(g.subtreesOf[h]))
		}
		p.piece = max(leastPiece, min(mostPiece, mostRoom/(2*(most+len(g.subtrees))))) / lineBytes * lineBytes
		p.room = c.Allocator().Allocate(2 * (len(p.sendsTo)*len(g.subtreesOf[g.here]) + len(g.subtrees)) * p.piece)
		c.pieces = p
	}
	for i := range 2 {
		p.out[i].kind, p.in[i].kind = kind, kind
	}
	return p
}

// outgoing returns the memory for a subtree's piece to the i-th rank whose proxy this is, and
// incoming that for a piece of a subtree of any host. Pieces that travel together are neighbors.
func (c *Comm) outgoing(turn, i int) []byte {
	p, n := c.pieces, len(c.group.subtreesOf[c.group.here])
	return p.room[(turn*len(p.sendsTo)+i)*n*p.piece:][:n*p.piece]
}

func (c *Comm) incoming(turn, host int) []byte {
	p, g, first, n := c.pieces, c.group, 0, 0
	for h := range host + 1 {
		first += n
		n = len(g.subtreesOf[h])
	}
	own := 2 * len(p.sendsTo) * len(g.subtreesOf[g.here])
	return p.room[(own+turn*len(g.subtrees)+first)*p.piece:][:n*p.piece]
}

// reduceParts reduces the part of every rank over all hosts, and passes this rank's part to store,
// block by block.
func reduceParts[T Number](c *Comm, kind Kind, op Op, part func(j int) (lo, hi int), store func(lo int, block []T)) error {
	g, p, size := c.group, c.overHosts(kind), elemSize[T]()
	step, mine := p.piece/size, g.subtreesOf[g.here]
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
					p.in[turn].Recv(g.proxy(h, c.rank), c.incoming(turn, h)[:len(g.subtreesOf[h])*(end-begin)*size])
				}
			}
			for k, j := range p.sendsTo {
				lo, hi := part(j)
				begin, end := min(lo+i*step, hi), min(lo+(i+1)*step, hi)
				out := c.outgoing(turn, k)[:len(mine)*(end-begin)*size]
				for i, t := range mine {
					reduceLocal(c, t, elements[T](out, i*(end-begin), end-begin), begin, op)
				}
				p.out[turn].Send(j, out)
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

// reduceSent returns what a rank sends to other hosts in reduceParts: the sums of its host's
// subtrees, of the parts of the ranks whose proxy it is. part returns the bytes of a rank's part.
func (c *Comm) reduceSent(part func(j int) int) (sent int) {
	g := c.group
	for j := range c.Size() {
		if !c.isLocal(j) && g.proxy(g.here, j) == c.rank {
			sent += part(j) * len(g.subtreesOf[g.here])
		}
	}
	return sent
}

// reduceLocal is reduceBlock over the ranks of a subtree of this host, of any length.
func reduceLocal[T Number](c *Comm, t subtree, acc []T, lo int, op Op) {
	c.takeTerms()
	first := c.group.localRank[t.first]
	for block := blockBytes / elemSize[T](); len(acc) > 0; {
		n := min(block, len(acc))
		reduceTerms(acc[:n], c.terms[first:first+t.end-t.first], lo, op)
		acc, lo = acc[n:], lo+n
	}
	c.dropTerms()
}

// combine reduces elements [begin, end) of this rank's part over the hosts, whose pieces have
// arrived.
func combine[T Number](c *Comm, p *hostReduction, turn, begin, end int, op Op, store func(lo int, block []T)) {
	g := c.group
	result := scratch[T](c)
	for at := begin; at < end; {
		n := min(len(result), p.piece/elemSize[T](), end-at)
		for h := range g.hosts {
			in, place := c.incoming(turn, h), 0
			for i, t := range g.subtrees {
				if t.host != h {
					continue
				}
				if h == g.here {
					own := elements[T](in, place*n, n)
					reduceLocal(c, t, own, at, op)
					p.terms[i] = bytesOf(own)
				} else {
					p.terms[i] = bytesOf(elements[T](in, place*(end-begin)+at-begin, n))
				}
				place++
			}
		}
		if op == Sum {
			sumSubtrees(result[:n], g.subtrees, p.terms, 0)
		} else {
			reduceTerms(result[:n], p.terms, 0, op)
		}
		store(at, result[:n])
		at += n
	}
}

// sumSubtrees sets dst to the sum over the ranks of neighboring subtrees of the len(dst) elements
// from lo, of terms that have the sum of one subtree each.
func sumSubtrees[T Number](dst []T, all []subtree, terms [][]byte, lo int) {
	switch len(all) {
	case 1:
		copy(dst, elements[T](terms[0], lo, len(dst)))
		return
	case 2:
		add2(dst, elements[T](terms[0], lo, len(dst)), elements[T](terms[1], lo, len(dst)))
		return
	}
	first, end := all[0].first, all[len(all)-1].end
	n := slices.IndexFunc(all, func(t subtree) bool { return t.first == first+leftHalf(end-first) })
	var right [sumPiece]T
	for at := 0; at < len(dst); at += sumPiece {
		left := dst[at:min(at+sumPiece, len(dst))]
		sumSubtrees(left, all[:n], terms[:n], lo+at)
		sumSubtrees(right[:len(left)], all[n:], terms[n:], lo+at)
		add2(left, left, right[:len(left)])
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
		var terms [MaxRanks][]byte
		for r := range c.Size() {
			s := c.slot(r)
			terms[r] = s.payload[:s.payloadLen]
		}
		reduceTerms(buf, terms[:c.Size()], 0, op)
	}
	c.retire(KindAllReduce, sizeOf(buf))
	return err
}

var _ = [1]struct{}{}[unsafe.Offsetof(slot{}.payload)%8] // for any element type
