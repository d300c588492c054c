package collective

// A world of several hosts: which ranks are where, and how the ranks of all hosts learn about each
// other's calls.

import (
	"fmt"
	"slices"
	"unsafe"

	"spmoe/collective/heap"
)

// Placement says which ranks are on which host. The ranks of a host are consecutive.
type Placement struct {
	Names []string // of the hosts, for error messages
	First []int    // first rank of each host
	Ranks int      // total number of ranks
}

// host returns the number of the host of a rank.
func (p *Placement) host(rank int) int {
	at, found := slices.BinarySearch(p.First, rank)
	if !found {
		at--
	}
	return at
}

// Describe names a rank, with its host if there are several: "rank 2 on host b".
func (p *Placement) Describe(rank int) string {
	if len(p.First) == 1 {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d on host %s", rank, p.Names[p.host(rank)])
}

// Part returns the ranks of a host.
func (p *Placement) Part(host int) heap.Part {
	end := p.Ranks
	if host+1 < len(p.First) {
		end = p.First[host+1]
	}
	return heap.Part{First: p.First[host], Ranks: end - p.First[host], World: p.Ranks}
}

// describeHost names the host of a rank and its ranks: "host b (ranks 2 to 3)".
func (w *World) describeHost(rank int) string {
	h := w.placement.host(rank)
	part, name := w.placement.Part(h), w.placement.Names[h]
	if part.Ranks == 1 {
		return fmt.Sprintf("host %s (rank %d)", name, part.First)
	}
	return fmt.Sprintf("host %s (ranks %d to %d)", name, part.First, part.First+part.Ranks-1)
}

// Hosts returns the ranks of the communicator by host, in the order of the hosts' first ranks.
func (c *Comm) Hosts() [][]int { return c.group.hosts }

// Placement says which ranks of the world are on which host.
func (c *Comm) Placement() *Placement { return c.group.world.placement }

// Host returns the index in Hosts of this rank's host.
func (c *Comm) Host() int { return c.group.here }

// spansHosts reports whether some ranks are on other hosts.
func (g *group) spansHosts() bool { return len(g.hosts) > 1 }

// locals returns the ranks of the group on this host.
func (g *group) locals() []int { return g.hosts[g.here] }

// divide determines the hosts of a group's ranks.
func (g *group) divide() {
	w := g.world
	of := map[int]int{} // index in hosts by host of the world
	g.hostOf = make([]int, len(g.worldRanks))
	g.localRank = make([]int, len(g.worldRanks))
	for r, world := range g.worldRanks {
		h := w.placement.host(world)
		at, ok := of[h]
		if !ok {
			at = len(g.hosts)
			of[h], g.hosts = at, append(g.hosts, nil)
			if world >= w.heap.Part().First && world < w.heap.Part().First+w.heap.Ranks() {
				g.here = at
			}
		}
		g.hostOf[r], g.localRank[r] = at, len(g.hosts[at])
		g.hosts[at] = append(g.hosts[at], r)
	}
	g.cut(0, len(g.hostOf))
}

// subtree is a part of the tree of sums over ranks: ranks [first, end), all on one host.
type subtree struct{ first, end, host int }

// cut appends the largest subtrees of ranks [lo, hi), which are a subtree themselves.
func (g *group) cut(lo, hi int) {
	host := g.hostOf[lo]
	if !slices.ContainsFunc(g.hostOf[lo:hi], func(h int) bool { return h != host }) {
		if g.subtreesOf == nil {
			g.subtreesOf = make([][]subtree, len(g.hosts))
		}
		t := subtree{lo, hi, host}
		g.subtrees, g.subtreesOf[host] = append(g.subtrees, t), append(g.subtreesOf[host], t)
		return
	}
	mid := lo + leftHalf(hi-lo)
	g.cut(lo, mid)
	g.cut(mid, hi)
}

// proxy returns the rank of a host that handles the messages from and to rank j of another host.
func (g *group) proxy(host, j int) int {
	return g.hosts[host][g.localRank[j]%len(g.hosts[host])]
}

// HostOf returns the index in Hosts of a rank's host.
func (c *Comm) HostOf(rank int) int { return c.group.hostOf[rank] }

// Proxy returns the rank of a host, given by its index in Hosts, that handles rank j of another
// host: what j sends to the host or receives from it passes through the proxy. The ranks of a host
// share this work evenly.
func (c *Comm) Proxy(host, j int) int { return c.group.proxy(host, j) }

// tellHosts sends the calls that the ranks of this host have published to all hosts, and publishes
// theirs here.
func (c *Comm) tellHosts(kind Kind) error {
	if c.rank == c.group.locals()[0] {
		if err := c.swapCalls(kind); err != nil {
			return err
		}
	}
	return c.meet(kind, true)
}

// toldBytes returns what this rank sends in tellHosts, in bytes. payload is the number of bytes
// that travel with the call of each rank.
func (c *Comm) toldBytes(payload int) int {
	g := c.group
	if c.rank != g.locals()[0] {
		return 0
	}
	return (len(g.hosts) - 1) * len(g.locals()) * (fixedBytes + payload)
}

// swapCalls sends the calls of this host's ranks to the first rank of every other host, and
// receives theirs.
func (c *Comm) swapCalls(kind Kind) error {
	g := c.group
	if c.calls == nil {
		c.calls = &callsOfHosts{messages: c.NewMessages(kind), theirs: make([][]byte, len(g.hosts))}
		c.calls.mine = c.Allocator().Allocate(len(g.locals()) * slotBytes)
		for h, ranks := range g.hosts {
			if h != g.here {
				c.calls.theirs[h] = c.Allocator().Allocate(len(ranks) * slotBytes)
			}
		}
	}
	k := c.calls
	k.messages.kind = kind
	for h, ranks := range g.hosts {
		if h != g.here {
			k.messages.Recv(ranks[0], k.theirs[h])
		}
	}
	n := 0
	for _, r := range g.locals() {
		n += c.slot(r).pack(k.mine[n:])
	}
	for h, ranks := range g.hosts {
		if h != g.here {
			k.messages.Send(ranks[0], k.mine[:n])
		}
	}
	if err := k.messages.WaitFirst(k.messages.Len()); err != nil {
		return err
	}
	at := 0 // index among the messages, which were started in the order of the hosts
	for h, ranks := range g.hosts {
		if h == g.here {
			continue
		}
		text := k.theirs[h][:k.messages.all[at].n]
		at++
		for _, r := range ranks {
			used, err := c.slot(r).unpack(text)
			if err != nil {
				err = fmt.Errorf("the calls of %s: %w", g.world.describeHost(g.worldRanks[r]), err)
				g.world.abort(g.worldRanks[r], g.worldRanks[c.rank], err)
				return err
			}
			text = text[used:]
		}
	}
	return k.messages.Wait()
}

// callsOfHosts is the memory of swapCalls.
type callsOfHosts struct {
	messages *Messages
	mine     []byte
	theirs   [][]byte // by host
}

// pack encodes a slot into b and returns the number of bytes.
func (s *slot) pack(b []byte) int {
	n := copy(b, s.fixed())
	n += copy(b[n:], s.err[:s.errLen])
	return n + copy(b[n:], s.payload[:s.payloadLen])
}

// unpack is the inverse of pack.
func (s *slot) unpack(b []byte) (used int, err error) {
	fixed := s.fixed()
	if used = copy(fixed, b); used < len(fixed) {
		return 0, fmt.Errorf("it is truncated after %d bytes", len(b))
	}
	if s.errLen < 0 || int(s.errLen) > len(s.err) || s.payloadLen < 0 || s.payloadLen > payloadBytes || len(b)-used < int(s.errLen+s.payloadLen) {
		return 0, fmt.Errorf("it announces %d and %d bytes, but %d follow", s.errLen, s.payloadLen, len(b)-used)
	}
	used += copy(s.err[:s.errLen], b[used:])
	used += copy(s.payload[:s.payloadLen], b[used:])
	return used, nil
}

// fixed returns the part of a slot that every call has.
func (s *slot) fixed() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(s)), fixedBytes)
}

const fixedBytes = int(unsafe.Offsetof(slot{}.err))
