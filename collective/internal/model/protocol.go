package model

// The functions of package collective, operation by operation. A function has the name of its
// counterpart there, which its comment names. TestCounterparts compares both. A comment that starts
// with "own:" marks a function that only the model has.

import "fmt"

// own: outsider declares the failure of a process that has died or, in another communicator, any
// failure.
func (p *program) outsider() {
	if !p.Outsider {
		p.add(func(s *state) *label {
			for r := range p.Ranks {
				if s.actors[r].is(dead) {
					return nil
				}
			}
			return asleep
		}, "sees that a rank has died")
	}
	p.fail()
}

// run is collective.World.Run of one rank.
func (p *program) run() {
	calls, erring := p.Calls, false
	if n, ok := p.Leaves[p.me]; ok {
		calls = calls[:n]
	}
	if n, ok := p.Errors[p.me]; ok {
		calls, erring = calls[:n], true
	}
	if n, ok := p.Panics[p.me]; ok {
		calls = calls[:n]
	}
	returned, failed, round := &label{}, &label{}, 0
	for i, kind := range calls {
		round = p.call(kind, i+1, round, failed)
	}
	p.where = ""
	if !erring {
		p.jump(returned)
	}
	p.at(failed)
	p.fail()
	p.at(returned)
	p.do(func(_ *state, me *actor) { me.set(finished) }, "has finished")
	p.ringAll()
}

// own: call is one collective of any kind: enter, the work, sync. It returns the last round.
func (p *program) call(kind Call, seq, round int, failed *label) int {
	p.where = fmt.Sprintf("call %d: ", seq)
	refused, aborted, syncAborted, done := &label{}, &label{}, &label{}, &label{}
	p.enter(seq, round+1, refused, aborted)
	last := round + 1
	if kind == Window {
		p.touch(seq)
		if p.Panics[p.me] == seq {
			p.jump(failed)
		}
		last++
		p.sync(last, syncAborted)
		p.do(func(_ *state, me *actor) {
			p.must(!me.is(spoiled), "%s gets its call %d as done, with another state of a buffer", p.nameOf(p.me), seq)
		}, "looks at what it has got")
	}
	p.do(func(_ *state, me *actor) { me.lent = 0 }, "returns from the call")
	p.jump(done)

	for reached, l := range []*label{refused, aborted, syncAborted} {
		p.at(l)
		p.do(func(_ *state, me *actor) {
			me.clear(spoiled)
			me.lent = 0
		}, "returns an error from the call")
		if p.Insists {
			p.insist(seq, round+reached+1)
		}
		p.jump(failed)
	}
	p.at(done)
	return last
}

// own: insist makes two more calls, which a failure must refuse.
func (p *program) insist(seq, round int) {
	for i := range 2 {
		next := &label{}
		if p.Mutation == PublishBeforeRefusal {
			p.publish(seq + 1 + i)
		}
		p.when(func(s *state) bool { return p.failed(s, round) }, next, nil, "looks for a failure")
		p.do(func(*state, *actor) { p.must(false, "%s is not refused a call after one has failed", p.nameOf(p.me)) }, "is not refused")
		p.at(next)
	}
}

// enter is collective.Comm.enter.
func (p *program) enter(seq, round int, refused, aborted *label) {
	if p.Mutation == PublishBeforeRefusal {
		p.publish(seq)
	}
	p.when(func(s *state) bool { return p.failed(s, round) }, refused, nil, "looks for a failure")
	if p.Mutation != PublishBeforeRefusal {
		p.publish(seq)
	}
	p.meet(round, true, aborted)
	p.do(func(s *state, _ *actor) {
		p.others(func(r int) {
			got := int(s.actors[r].slots[p.parity(seq)])
			p.must(got == seq, "%s, in call %d, reads call %d in the slot of rank %d", p.nameOf(p.me), seq, got, r)
		})
	}, "reads the slots")
}

// sync is collective.Comm.sync.
func (p *program) sync(round int, aborted *label) {
	p.meet(round, p.Processes || p.Mutation == AbortableSync, aborted)
}

// own: parity returns the slot of a call, which collective computes in place.
func (p *program) parity(seq int) int {
	if p.Mutation == OneSlot {
		return 0
	}
	return seq % 2
}

// publish is collective.call.publish.
func (p *program) publish(seq int) {
	p.do(func(_ *state, me *actor) { me.slots[p.parity(seq)], me.lent = uint8(seq), uint8(seq) }, "publishes")
}

// own: touch reads and writes the peers' buffers, as the work of a collective does.
func (p *program) touch(seq int) {
	p.do(func(s *state, me *actor) {
		p.others(func(r int) {
			if int(s.actors[r].lent) != seq {
				me.set(spoiled)
				p.must(p.Processes, "%s, in call %d, uses the buffer of rank %d, which has returned", p.nameOf(p.me), seq, r)
			}
		})
	}, "uses the buffers")
}

// meet is collective.Comm.meet: it goes to aborted if the meeting is aborted.
func (p *program) meet(round int, abortable bool, aborted *label) {
	late := p.Mutation == LateArrival
	arrive := func() {
		p.do(func(_ *state, me *actor) { me.round = uint8(round) }, "arrives at meeting %d", round)
	}
	incomplete := &label{}
	if !late {
		arrive()
	}
	p.when(func(s *state) bool { return p.complete(s, round) }, nil, incomplete, "looks whether all have come to meeting %d", round)
	p.decide(round, false, incomplete)
	p.at(incomplete)
	if late {
		arrive()
	}
	p.await(round, abortable)
	p.add(func(s *state) *label {
		abort := int(s.decision) == round<<1|1
		p.must(abort == (int(s.aborted) == round), "ranks get different outcomes of meeting %d", round)
		if abort {
			return aborted
		}
		return nil
	}, "takes the outcome of meeting %d", round)
}

// decide is collective.group.decide and, for the rank whose decision counts, group.ring. A rank
// that is late goes to lost. The loop around the compare-and-swap is one operation here, because
// what it stores depends on nothing that can change in between.
func (p *program) decide(round int, abort bool, lost *label) {
	value := round << 1
	if abort {
		value++
	}
	early := p.Mutation == RingBeforeStore
	if early {
		p.others(func(r int) {
			p.do(func(s *state, me *actor) {
				me.seen &^= 1 << r
				if s.actors[r].is(waiting) {
					me.seen |= 1 << r
				}
			}, "looks too early whether rank %d waits", r)
		})
	}
	p.add(func(s *state) *label {
		if int(s.decision>>1) >= round && p.Mutation != StoredDecision {
			return lost
		}
		p.must(s.aborted == 0 || p.Mutation == StoredDecision, "meeting %d is decided after meeting %d was called off", round, s.aborted)
		p.must(!abort || p.mayFail(), "meeting %d is called off without a failure", round)
		s.decision = uint8(value)
		if abort {
			s.aborted = uint8(round)
		}
		return nil
	}, "decides meeting %d (called off: %v)", round, abort)
	p.others(func(r int) { p.ring(r, early) })
}

// complete is collective.group.complete.
func (p *program) complete(s *state, round int) bool {
	for r := range p.Ranks {
		if r != p.me && int(s.actors[r].round) < round {
			return false
		}
	}
	return true
}

// abandoned is collective.group.abandoned.
func (p *program) abandoned(s *state, round int) (gone bool) {
	for r := range p.Ranks {
		if r == p.me || int(s.actors[r].round) >= round {
			continue
		}
		if !s.actors[r].is(finished) || p.Mutation == EndlessSync {
			return false
		}
		gone = true
	}
	return gone
}

// failed is collective.group.failed.
func (p *program) failed(s *state, round int) bool {
	for r := range p.Ranks {
		if r != p.me && s.actors[r].is(finished) && int(s.actors[r].round) < round {
			return true
		}
	}
	return s.failed != 0
}

// own: ready is the function that Comm.meet passes to Await.
func (p *program) ready(round int, abortable bool, yes, no *label) {
	decided := func(s *state) bool { return int(s.decision>>1) >= round }
	abort, again, after := &label{}, &label{}, &label{}
	if no == nil {
		no = after
	}
	p.add(func(s *state) *label {
		switch {
		case decided(s):
			return yes
		case abortable && p.failed(s, round), !abortable && p.abandoned(s, round):
			return abort
		}
		return no
	}, "looks whether meeting %d is decided", round)
	p.at(abort)
	p.decide(round, true, again)
	p.at(again)
	p.when(decided, yes, no, "looks again whether meeting %d is decided", round)
	p.at(after)
}
