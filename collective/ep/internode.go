package ep

// The exchange between hosts. A token's row crosses the network once per host that it visits, to
// the rank there that is its source's proxy. The proxy handles the token's choices as if they were
// its own: it stores the row at their places, and sends back the results of their experts. The
// experts' rows come back one by one, without summing, so that their sum has the same bits as on
// one host.

import (
	"encoding/binary"
	"fmt"
	"slices"

	"spmoe/collective"
)

// internode is the part of a rank's exchange that concerns other hosts.
type internode struct {
	exchange *OneSided
	comm     *collective.Comm
	ranks    [][]int // by host
	here     int
	hostOf   []int // by expert
	number   []int // number of a rank in the host's communicator; -1: it is on another host
	proxies  []int // of this rank, by host
	sources  []int // ranks of other hosts whose proxy this is

	// numbers of rows per expert, and of tokens that visit each host: of this rank, of all [ranks,
	// experts + hosts]
	mine, all []int32
	next      []int32 // running places, by expert
	newest    []int32 // the last token that has visited a host

	in, out *collective.Messages
	marks   []int         // of in: where the messages of each source end
	to      []hostBuffers // by host
	from    []hostBuffers // by source
	back    buffer        // rows of this rank's choices on other hosts
}

// routes are the routes of one handle's rows between hosts.
type routes struct {
	to   []route // by host: this rank's tokens
	from []route // by source: its tokens

	near []int32 // place of each choice on this host; -1: it is on another host, or masked
	// where Combine finds the row of each choice: in a rank's memory, or, with the owner after all
	// ranks, among the rows that came back
	back, backOwners []int32
	returned         int // number of rows that come back
}

// route holds a rank's tokens that visit a host, with one row per token, and their choices there.
type route struct {
	rows, kept int // kept: number of choices that have a place
	// for each row the number of kept choices, then for each of these its expert's number on the
	// host
	header []byte
	tokens []int32 // of the rows; on the source
	// the kept choices, in the order of the header; on the source
	choices []int32

	// [rows, slots], -1 after the kept choices; on the proxy
	owners, places []int32
}

// newInternode prepares the exchange between the hosts of its communicator. comm has the same
// ranks, so that its messages do not mix with those of collectives.
func newInternode(s *OneSided, comm *collective.Comm) *internode {
	c := s.comm
	n := &internode{exchange: s, comm: comm, ranks: c.Hosts(), here: c.Host(), number: make([]int, c.Size())}
	hosts := len(n.ranks)
	for r := range n.number {
		n.number[r] = slices.Index(n.ranks[n.here], r)
	}
	n.hostOf = make([]int, s.layout.Experts)
	for e := range n.hostOf {
		n.hostOf[e] = c.HostOf(s.layout.Owner(e))
	}
	n.proxies = make([]int, hosts)
	for h, ranks := range n.ranks {
		if h == n.here {
			continue
		}
		n.proxies[h] = c.Proxy(h, c.Rank())
		for _, r := range ranks {
			if c.Proxy(n.here, r) == c.Rank() {
				n.sources = append(n.sources, r)
			}
		}
	}
	each := s.layout.Experts + hosts
	n.mine, n.all = make([]int32, each), make([]int32, each*c.Size())
	n.next, n.newest = make([]int32, s.layout.Experts), make([]int32, hosts)
	n.in, n.out = n.comm.NewMessages(collective.KindDispatch), n.comm.NewMessages(collective.KindDispatch)
	n.marks, n.to, n.from = make([]int, len(n.sources)), make([]hostBuffers, hosts), make([]hostBuffers, len(n.sources))
	return n
}

// count tells all ranks how many rows each rank has per expert, and how many of its tokens visit
// each host.
func (n *internode) count(topk []int32, slots int) error {
	s := n.exchange
	visits := n.mine[copy(n.mine, s.chosen):]
	clear(visits)
	n.eachVisit(topk, slots, func(_, host, _ int) { visits[host]++ }, func(int, int) {})
	if err := collective.AllGather(s.comm, n.all, n.mine); err != nil {
		return err
	}
	each := len(n.mine)
	if err := checkCounts(n.all, each); err != nil {
		return err
	}
	for r := range s.layout.Ranks {
		copy(s.all[r*s.layout.Experts:][:s.layout.Experts], n.all[r*each:])
	}
	return nil
}

// eachVisit calls visit for each pair of a token and another host that it has choices on, and
// choice for each of these choices.
func (n *internode) eachVisit(topk []int32, slots int, visit func(token, host, i int), choice func(i, host int)) {
	for h := range n.newest {
		n.newest[h] = -1
	}
	for i, e := range topk {
		if e < 0 {
			continue
		}
		h, token := n.hostOf[e], i/slots
		if h == n.here {
			continue
		}
		if n.newest[h] != int32(token) {
			n.newest[h] = int32(token)
			visit(token, h, i)
		}
		choice(i, h)
	}
}

// plan determines the routes of a handle's rows, whose places are known.
func (n *internode) plan(h *Handle, topk []int32) {
	s, p := n.exchange, &h.routes
	p.to, p.from = resize(p.to, len(n.ranks)), resize(p.from, len(n.sources))
	for host := range p.to {
		to := &p.to[host]
		to.rows, to.kept, to.tokens, to.choices, to.header = 0, 0, to.tokens[:0], to.choices[:0], to.header[:0]
	}
	p.near = append(p.near[:0], h.packed...)
	n.eachVisit(topk, h.slots, func(token, host, _ int) {
		to := &p.to[host]
		to.rows++
		to.tokens, to.header = append(to.tokens, int32(token)), append(to.header, 0)
	}, func(i, host int) {
		p.near[i] = -1
		if to := &p.to[host]; h.packed[i] >= 0 {
			to.kept++
			to.header[to.rows-1]++
			to.choices = append(to.choices, int32(i))
		}
	})
	p.back, p.backOwners, p.returned = append(p.back[:0], h.packed...), append(p.backOwners[:0], h.owners...), 0
	for host := range p.to {
		to := &p.to[host]
		for _, i := range to.choices {
			to.header = n.appendExpert(to.header, host, topk[i])
			p.back[i], p.backOwners[i] = int32(p.returned), int32(s.layout.Ranks)
			p.returned++
		}
	}
	for k, source := range n.sources {
		from := &p.from[k]
		from.rows, from.kept = n.tokens(source, n.here), n.choices(source, n.here)
	}
}

// tokens returns the number of tokens of a rank that visit a host.
func (n *internode) tokens(source, host int) int {
	return int(n.all[source*len(n.mine)+n.exchange.layout.Experts+host])
}

// choices returns the number of accepted choices of a rank on a host.
func (n *internode) choices(source, host int) (sum int) {
	s := n.exchange
	for _, r := range n.ranks[host] {
		for e, hi := s.layout.Local(r); e < hi; e++ {
			sum += int(s.all[source*s.layout.Experts+e])
		}
	}
	return sum
}

// expertBytes returns the size of an expert's number on a host.
func (n *internode) expertBytes(host int) int {
	if n.exchange.layout.PerRank*len(n.ranks[host]) <= 1<<8 {
		return 1
	}
	return 2
}

// appendExpert appends the number of an expert on its host.
func (n *internode) appendExpert(b []byte, host int, expert int32) []byte {
	each := n.exchange.layout.PerRank
	number := slices.Index(n.ranks[host], int(expert)/each)*each + int(expert)%each
	if n.expertBytes(host) == 1 {
		return append(b, byte(number))
	}
	return binary.LittleEndian.AppendUint16(b, uint16(number))
}

// read computes the places of a source's choices from the experts in the header. A rank's rows for
// an expert have the order in which it lists them.
func (n *internode) read(h *Handle, p *route, source int) error {
	s, each, slots := n.exchange, n.exchange.layout.PerRank, h.slots
	for _, r := range n.ranks[n.here] {
		s.starts(source, r, n.next)
	}
	p.owners, p.places = resize(p.owners, p.rows*slots), resize(p.places, p.rows*slots)
	counts, experts, width := p.header[:p.rows], p.header[p.rows:], n.expertBytes(n.here)
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("the header of rank %d is damaged: %s", source, fmt.Sprintf(format, args...))
	}
	for row, count := range counts {
		if int(count) > slots || len(experts) < int(count)*width {
			return damaged("row %d has %d choices of %d", row, count, slots)
		}
		for k := range slots {
			at := row*slots + k
			if p.places[at] = -1; k >= int(count) {
				continue
			}
			number := int(experts[0])
			if width == 2 {
				number = int(binary.LittleEndian.Uint16(experts))
			}
			experts = experts[width:]
			if number >= each*len(n.ranks[n.here]) {
				return damaged("it names expert %d of %d", number, each*len(n.ranks[n.here]))
			}
			owner := n.ranks[n.here][number/each]
			e := owner*each + number%each
			p.owners[at], p.places[at] = int32(owner), n.next[e]
			n.next[e]++
			if n.next[e] > h.perRank[owner] {
				return damaged("it names expert %d too often", e)
			}
		}
	}
	return nil
}
