package collective

// The heartbeat of a world of several hosts. The first rank of each host tells the others every
// second that its host is alive, and at once if it has failed. A silent host is lost.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The tags of messages: those of communicators follow.
const (
	// PulseTag is the tag of messages that are always expected, and never urgent.
	PulseTag = 0
	worldTag = 1
)

const (
	pulseTime = time.Second
	leaveTime = time.Millisecond // replaces lookTime while a host waits for the others to leave
	// noticeTime is how long a failed host tries to tell the others.
	noticeTime = time.Second
	noticeSize = 2 << 10
)

// The length of a message says what it means. Longer messages are a failed rank, in 4 bytes, and
// the reason.
const (
	beats   = 1 // the host is alive
	leaves  = 2 // all its ranks have finished
	notices = 4
)

// pulse connects the first rank of a host with those of the other hosts.
type pulse struct {
	world *World
	own   int // rank
	hosts []otherHost
	done  chan struct{} // closed when the rank is done
	ended chan struct{}
}

// otherHost is the state of another host.
type otherHost struct {
	first       int // rank
	in, out     Transfer
	room, words []byte
	seen        time.Time
	left        bool
}

// startPulse starts to watch the other hosts, if this process has the first rank of its host. stop
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
	finished, leaving, end := false, false, time.Time{}
	for {
		select {
		case <-done:
			finished, done, end = true, nil, time.Now()
			look.Reset(leaveTime)
		case <-look.C:
		}
		now := time.Now()
		// this host could not listen: it was stopped, or its network was busy
		if gap := now.Sub(last); gap > pulseTime {
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
		if finished && !leaving && p.world.heap.AllFinished() && p.sent() {
			p.send(leaves)
			leaving = true
		}
		if leaving && p.staying() < 0 {
			return
		}
		if limit := p.world.limits.Wait; finished && limit > 0 && now.Sub(end) >= limit {
			late := p.world.heap.Unfinished()
			if late < 0 {
				late = p.staying()
			}
			p.world.abort(late, p.own, fmt.Errorf("it has not ended within %v after rank %d had", limit, p.own))
		}
		if !leaving && now.Sub(beat) >= pulseTime {
			p.send(beats)
			beat = now
		}
	}
}

// listen receives messages of the other hosts, and measures their silence.
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

// sent reports whether every host has received the previous message.
func (p *pulse) sent() bool {
	for i := range p.hosts {
		if !p.hosts[i].out.done.Load() {
			return false
		}
	}
	return true
}

// send sends a message of this length to every host that has received the previous one: a host that
// is cut off never does.
func (p *pulse) send(bytes int) {
	for i := range p.hosts {
		if h := &p.hosts[i]; h.out.done.Load() {
			p.start(&h.out, h.first, false, h.words[:bytes])
		}
	}
}

// staying returns the first rank of a host that has not left; -1: all have.
func (p *pulse) staying() int {
	for i := range p.hosts {
		if !p.hosts[i].left || !p.hosts[i].out.done.Load() {
			return p.hosts[i].first
		}
	}
	return -1
}

// notify tells all hosts that still listen about a failure.
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
