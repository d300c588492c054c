package model

// The functions of package heap: waiting, waking and declaring failures. Names and comments are as
// in protocol.go.

// await is heap.Heap.Await.
func (p *program) await(round int, abortable bool) {
	first, loop, ready, done := &label{}, &label{}, &label{}, &label{}
	p.at(first)
	p.ready(round, abortable, done, nil)
	if p.Spins {
		p.fork(first, "goes on looking")
	}
	p.at(loop)
	p.do(func(_ *state, me *actor) { me.set(waiting) }, "counts itself as waiting")
	p.do(func(_ *state, me *actor) { me.clear(rung) }, "remembers the bell")
	if p.Mutation != NoSecondLook {
		p.ready(round, abortable, ready, nil)
	}
	p.do(func(_ *state, me *actor) {
		if !me.is(rung) {
			me.set(parked)
		}
		me.clear(rung)
	}, "parks if the bell is the same")
	p.add(func(s *state) *label {
		if s.actors[p.me].is(parked) {
			return asleep
		}
		return nil
	}, "wakes up, if it is woken")
	p.do(func(_ *state, me *actor) { me.clear(waiting | rung) }, "counts itself out")
	if p.Mutation == NoSecondLook {
		p.ready(round, abortable, done, loop)
	} else {
		p.jump(loop)
	}
	p.at(ready)
	p.do(func(_ *state, me *actor) { me.clear(waiting | rung) }, "counts itself out, having seen it")
	p.at(done)
}

// ring is heap.Heap.Ring.
func (p *program) ring(r int, seen bool) {
	skip := &label{}
	waits := func(s *state) bool { return s.actors[r].is(waiting) }
	if seen {
		waits = func(s *state) bool { return s.actors[p.me].seen&(1<<r) != 0 }
	}
	p.when(waits, nil, skip, "looks whether rank %d waits", r)
	p.do(func(s *state, _ *actor) {
		if !s.actors[r].is(parked) {
			s.actors[r].set(rung)
		}
	}, "rings for rank %d", r)
	p.do(func(s *state, _ *actor) { s.actors[r].clear(parked) }, "wakes rank %d", r)
	p.at(skip)
}

// ringAll is heap.Heap.RingAll.
func (p *program) ringAll() { p.others(func(r int) { p.ring(r, false) }) }

// fail is heap.Heap.Fail.
func (p *program) fail() {
	late := &label{}
	switch p.Mutation {
	case ClaimedFailure:
		p.add(func(s *state) *label {
			if s.claim != 0 {
				return late
			}
			s.claim = 1
			return nil
		}, "claims to declare a failure")
		p.do(func(s *state, _ *actor) { s.failed = uint8(p.me + 1) }, "declares it")
	default:
		p.add(func(s *state) *label {
			if s.failed == 0 {
				s.failed = uint8(p.me + 1)
			} else if p.Mutation == SilentSecondFailure {
				return late
			}
			return nil
		}, "declares a failure")
	}
	p.ringAll()
	p.at(late)
}
