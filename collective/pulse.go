package collective

// The pulse of a world of several hosts: the first rank of each tells the others every second that
// its host is there, and at once if it has failed. A host that falls silent is lost.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The tags of messages: communicators follow.
const (
	// PulseTag is that of messages that are always awaited, and never urgent.
	PulseTag = 0
	worldTag = 1
)

const (
	pulseTime = time.Second
	leaveTime = time.Millisecond // is lookTime while a host waits for the others to leave
	// noticeTime is how long a host that has failed tries to tell the others.
	noticeTime = time.Second
	noticeSize = 2 << 10
)

// What the hosts tell each other is known by its length: longer messages are a rank that has
// failed, in 4 bytes, and why.
const (
	beats   = 1 // the host is there
	leaves  = 2 // all its ranks have finished
	notices = 4
)

// pulse is the first rank of a host with the first ranks of the others.
type pulse struct {
	world *World
	own   int // rank
	hosts []otherHost
	done  chan struct{} // closed when the rank is done
	ended chan struct{}
}

// otherHost is what is known of a host.
type otherHost struct {
	first       int // rank
	in, out     Transfer
	room, words []byte
	seen        time.Time
	left        bool
}

// startPulse begins to watch the other hosts, if this process has the first rank of its host. stop
// returns when all ranks of all hosts have finished, or one has failed and the others have been
// told.
func (w *World) startPulse() (stop func()) {
	p := &pulse{world: w, own: w.heap.Part().First, done: make(chan struct{}), ended: make(chan struct{})}
	if w.network == nil || w.comms[p.own] == nil {
		return func() {}
	}
	for _, first := range w.placement.First {
		if first != p.own {
			p.hosts = append(p.hosts, otherHost{first: first, room: make([]byte, noticeSize), words: make([]byte, 0, noticeSize), seen: time.Now()})
		}
	}
	for i := range p.hosts {
		h := &p.hosts[i]
		p.start(&h.in, h.first, true, h.room)
		h.out.done.Store(true)
	}
	go p.run()
	return func() {
		close(p.done)
		<-p.ended
	}
}

func (p *pulse) start(t *Transfer, peer int, receives bool, b []byte) {
	t.Rank, t.Peer, t.Tag, t.Receives, t.Data, t.world = p.own, peer, PulseTag, receives, b, p.world
	t.done.Store(false)
	p.world.network.Start(t)
}

func (p *pulse) run() {
	defer close(p.ended)
	look := time.NewTicker(lookTime)
	defer look.Stop()
	beat, last, done := time.Now(), time.Now(), p.done
	finished, leaving := false, false
	for {
		select {
		case <-done:
			finished, done = true, nil
			look.Reset(leaveTime)
		case <-look.C:
		}
		now := time.Now()
		if gap := now.Sub(last); gap > pulseTime { // this host was deaf: stopped, or its network at work on something else
			for i := range p.hosts {
				p.hosts[i].seen = p.hosts[i].seen.Add(gap)
			}
		}
		last = now
		p.listen(now)
		if p.world.heap.Failed() {
			p.notify()
			return
		}
		if finished && !leaving && p.world.heap.AllFinished() && p.tell(leaves) {
			leaving = true
		}
		if leaving && p.allLeft() {
			return
		}
		if !leaving && now.Sub(beat) >= pulseTime && p.tell(beats) {
			beat = now
		}
	}
}

// listen hears what the other hosts say, and counts how long they have said nothing.
func (p *pulse) listen(now time.Time) {
	w := p.world
	w.network.Progress()
	for i := range p.hosts {
		h := &p.hosts[i]
		if h.left {
			continue
		}
		if !h.in.done.Load() {
			if silent := now.Sub(h.seen); w.limits.Host > 0 && silent >= w.limits.Host {
				w.abort(h.first, p.own, fmt.Errorf("%s has been silent for %v: it is down or cut off", w.describeHost(h.first), silent.Round(time.Second)))
			}
			continue
		}
		h.seen = now
		if err := h.in.failure(); err != nil {
			w.abort(h.first, p.own, err)
			return
		}
		switch text := h.room[:h.in.n]; {
		case len(text) >= notices:
			w.abort(int(binary.LittleEndian.Uint32(text)), p.own, errors.New(string(text[notices:])))
			return
		case len(text) == leaves:
			h.left = true
			continue
		}
		p.start(&h.in, h.first, true, h.room)
	}
}

// tell sends so many bytes to every host, unless one has not taken yet what was sent before.
func (p *pulse) tell(bytes int) bool {
	for i := range p.hosts {
		if !p.hosts[i].out.done.Load() {
			return false
		}
	}
	for i := range p.hosts {
		h := &p.hosts[i]
		p.start(&h.out, h.first, false, h.words[:bytes])
	}
	return true
}

func (p *pulse) allLeft() bool {
	for i := range p.hosts {
		if !p.hosts[i].left || !p.hosts[i].out.done.Load() {
			return false
		}
	}
	return true
}

// notify tells all hosts of a failure, as far as they still listen.
func (p *pulse) notify() {
	f := p.world.failed()
	text := f.err.Error()
	text = text[:min(len(text), noticeSize-notices)]
	told := make([]Transfer, len(p.hosts))
	for i := range p.hosts {
		words := append(binary.LittleEndian.AppendUint32(nil, uint32(f.rank)), text...)
		p.start(&told[i], p.hosts[i].first, false, words)
	}
	for end := time.Now().Add(noticeTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.world.network.Progress()
		left := len(told)
		for i := range told {
			if told[i].done.Load() {
				left--
			}
		}
		if left == 0 {
			return
		}
	}
}
