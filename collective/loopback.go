package collective

// A network within this process, for tests.

import "sync"

// NewHosts returns a world whose ranks are goroutines of this process that behave as if they were
// on several hosts, with ranks[h] ranks on host h. Ranks of different hosts only exchange messages.
// It is for tests. Each host has its own [World].
func NewHosts(ranks ...int) Hosts {
	p, net := placed(ranks), newLoopback()
	worlds := make(Hosts, len(ranks))
	for h := range worlds {
		worlds[h] = newWorld(p, h)
		worlds[h].network = net
	}
	return worlds
}

// Hosts are the worlds of the hosts of one job.
type Hosts []*World

// Run runs f on every rank of all hosts, and returns the result of [World.Run] of each host.
func (h Hosts) Run(f func(c *Comm) error) []error {
	errs := make([]error, len(h))
	var wg sync.WaitGroup
	for i, w := range h {
		wg.Go(func() { errs[i] = w.Run(f) })
	}
	wg.Wait()
	return errs
}

// placed returns a placement with the given numbers of ranks.
func placed(ranks []int) *Placement {
	p := &Placement{}
	for h, n := range ranks {
		p.Names, p.First = append(p.Names, string(rune('a'+h%26))), append(p.First, p.Ranks)
		p.Ranks += n
	}
	return p
}

// loopback copies a message when both ends have started it.
type loopback struct {
	mu      sync.Mutex
	waiting map[route][]*Transfer // transfers that wait for their other end, in order
}

func newLoopback() *loopback { return &loopback{waiting: map[route][]*Transfer{}} }

type route struct {
	from, to, tag int
	receives      bool
}

// Start implements [Network].
func (l *loopback) Start(t *Transfer) {
	at := route{t.Rank, t.Peer, t.Tag, t.Receives}
	if t.Receives {
		at.from, at.to = t.Peer, t.Rank
	}
	other := at
	other.receives = !t.Receives
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting[other]) == 0 {
		l.waiting[at] = append(l.waiting[at], t)
		return
	}
	peer := l.waiting[other][0]
	l.waiting[other] = l.waiting[other][1:]
	from, to := t, peer
	if t.Receives {
		from, to = peer, t
	}
	n := len(from.Data)
	copy(to.Data, from.Data)
	from.End(n, nil)
	to.End(n, nil)
}

// Progress implements [Network].
func (l *loopback) Progress() {}
