// Package model is the protocol of the collectives as a small state machine, and a checker that
// visits every state of it.
//
// A rank's program has one step for each atomic operation of Heap.Await, Heap.Ring, Heap.Fail and
// Comm.meet, and for each access to shared slots and buffers. Steps of all ranks interleave in
// every order. Accesses to plain memory happen at one point between the atomic operations around
// them, so an access that may overlap with a conflicting one is also seen on the wrong side of it.
// Memory is sequentially consistent. In every reached state these conditions must hold:
//
//   - some actor can take a step, unless all ranks have returned or died: no deadlock and no lost
//     wake-up;
//   - a slot that is read has the reader's current call: none is overwritten before all have read
//     it;
//   - a buffer that is read or written is lent to that call, so its owner has not returned; rank
//     processes may find another state of it, but then the call fails;
//   - every rank gets the same outcome of a meeting, no meeting is decided after one was aborted,
//     and none is aborted without a failure;
//   - after a failure, calls are refused.
//
// To limit the number of states, indistinguishable steps are merged. A loop over flags that only
// ever rise (which ranks have arrived, finished or failed) has the outcome of one look at all of
// them: at the time of its last look if it succeeds, and of its first look if not. Reading the
// slots of all ranks, or using their buffers, is one step too: the last of these reads sees
// whatever the others could. Statistics, time limits and the text of failures are left out, because
// nothing waits for them.
package model

import "fmt"

const maxRanks = 3

// state is everything that determines what can happen next.
type state struct {
	decision uint8 // of the board: round<<1, plus 1 if it was aborted
	failed   uint8 // rank+1 whose failure is declared
	claim    uint8 // ClaimedFailure
	aborted  uint8 // the round that was aborted
	actors   [maxRanks + 1]actor
}

// actor is a rank or, after the ranks, an actor that is not a rank: the launcher, or a rank of
// another communicator.
type actor struct {
	pc    uint16
	round uint8    // of its arrival
	slots [2]uint8 // the calls that they describe
	lent  uint8    // the call that its buffer is lent to
	seen  uint8    // RingBeforeStore: bits of the waiting ranks
	flags flags
}

type flags uint8

const (
	finished flags = 1 << iota
	waiting        // it has counted itself as waiting
	// the bell has changed since it looked at it; only set for an actor that is about to park
	rung
	parked
	dead
	spoiled // it has read or written a buffer that was not lent
)

func (a *actor) is(f flags) bool { return a.flags&f != 0 }
func (a *actor) set(f flags)     { a.flags |= f }
func (a *actor) clear(f flags)   { a.flags &^= f }

// die leaves what others can see of an actor, so that all its deaths between two operations with an
// effect are one state.
func (a *actor) die() {
	a.pc, a.seen, a.flags = 0, 0, a.flags&(finished|waiting)|dead
}

// step is one atomic operation. run executes it and returns the label of the next step; nil: the
// following one. or is another label that the actor may go to instead of executing it. It must go
// there if run is nil.
type step struct {
	name string
	run  func(s *state) *label
	or   *label
}

// label is a place in a program.
type label struct{ pc uint16 }

// asleep is the result of a step that is not possible now.
var asleep = &label{}

// program is the sequence of steps of an actor.
type program struct {
	*system
	me    int
	where string // prefix of the names of steps
	steps []step
}

func (p *program) add(run func(s *state) *label, format string, args ...any) {
	p.steps = append(p.steps, step{name: p.where + fmt.Sprintf(format, args...), run: run})
}

func (p *program) do(run func(s *state, me *actor), format string, args ...any) {
	p.add(func(s *state) *label { run(s, &s.actors[p.me]); return nil }, format, args...)
}

// when looks at shared words and goes to yes or no; nil is the next step.
func (p *program) when(cond func(s *state) bool, yes, no *label, format string, args ...any) {
	p.add(func(s *state) *label {
		if cond(s) {
			return yes
		}
		return no
	}, format, args...)
}

// jump goes to a label. It is not visible, so it is not a step of its own.
func (p *program) jump(to *label) { p.steps = append(p.steps, step{or: to}) }

// fork goes to a label, or does not.
func (p *program) fork(to *label, name string) {
	p.do(func(*state, *actor) {}, "%s", name)
	p.steps[len(p.steps)-1].or = to
}

// at puts a label here.
func (p *program) at(l *label) { l.pc = uint16(len(p.steps)) }

// others calls f for the other ranks, in order.
func (p *program) others(f func(r int)) {
	for r := range p.Ranks {
		if r != p.me {
			f(r)
		}
	}
}

// system holds the programs of a configuration.
type system struct {
	Config
	programs []*program
	problem  string // found by the last step
}

func (m *system) must(ok bool, format string, args ...any) {
	if !ok && m.problem == "" {
		m.problem = fmt.Sprintf(format, args...)
	}
}

// ended reports whether an actor has finished.
func (m *system) ended(s *state, i int) bool { return int(s.actors[i].pc) == len(m.programs[i].steps) }

// mayDie reports whether an actor can die now.
func (m *system) mayDie(s *state, i int) bool {
	if m.Deaths == 0 || i == m.Ranks {
		return false
	}
	deaths := 0
	for r := range m.Ranks {
		if s.actors[r].is(dead) {
			deaths++
		}
	}
	return deaths < m.Deaths
}

func (m *system) nameOf(i int) string {
	if i == m.Ranks {
		return "outsider"
	}
	return fmt.Sprintf("rank %d", i)
}
