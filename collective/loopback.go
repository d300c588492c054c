package collective

// A network within this process.

import "sync"

// NewHosts makes a world whose ranks are goroutines of this process and, all the same, on several
// hosts: ranks[h] of them on host h, which reach the memory of their own host only and send
// messages to the others. It is for tests of what runs on several hosts. Each host has a [World] of
// its own.
func NewHosts(ranks ...int) Hosts {
	p, net := placed(ranks), newLoopback()
	worlds := make(Hosts, len(ranks))
	for h := range worlds {
		worlds[h] = newWorld(p, h)
		worlds[h].network = net
	}
	return worlds
}

// Hosts are the worlds of hosts that make up one.
type Hosts []*World

// Run runs f on every rank of all hosts, and returns what each host's [World.Run] has.
func (h Hosts) Run(f func(c *Comm) error) []error {
	errs := make([]error, len(h))
	var wg sync.WaitGroup
	for i, w := range h {
		wg.Go(func() { errs[i] = w.Run(f) })
	}
	wg.Wait()
	return errs
}

// placed names hosts of so many ranks.
func placed(ranks []int) *Placement {
	p := &Placement{}
	for h, n := range ranks {
		p.Names, p.First = append(p.Names, string(rune('a'+h%26))), append(p.First, p.Ranks)
		p.Ranks += n
	}
	return p
}

// loopback carries messages by copying them, when both ends have come.
type loopback struct {
	mu      sync.Mutex
	waiting map[route][]*Transfer // for the other end, in the order in which they came
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
