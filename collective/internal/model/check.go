package model

// The checker: it visits every state that any interleaving of the actors' steps reaches, nearest
// first.

import (
	"fmt"
	"strings"
)

// Result is the result of a check.
type Result struct {
	States      int // distinct states
	Transitions int
	Problem     string   // what is wrong in the first wrong state; empty if all are right
	Trace       []string // a shortest path to that state
}

// String describes the result in a few lines.
func (r Result) String() string {
	if r.Problem == "" {
		return fmt.Sprintf("%d states, %d transitions: correct", r.States, r.Transitions)
	}
	return fmt.Sprintf("%d states, %d transitions: %s, after %d steps:\n\t%s", r.States, r.Transitions, r.Problem, len(r.Trace), strings.Join(r.Trace, "\n\t"))
}

// visit records how a state was first reached.
type visit struct {
	from  int32
	actor int8
	what  event
}

// event is what an actor does: a step of its program, or something else.
type event int8

const (
	stepped event = iota
	died
)

type search struct {
	*system
	index  map[state]struct{}
	states []state // in the order of their discovery; also the queue
	visits []visit
	result Result
}

// Check explores a configuration up to the first problem.
func Check(c Config) Result {
	m := &search{system: newSystem(c), index: map[state]struct{}{}}
	m.visit(state{}, visit{from: -1})
	for at := 0; at < len(m.states) && m.result.Problem == ""; at++ {
		m.expand(int32(at))
	}
	m.result.States = len(m.states)
	return m.result
}

// expand takes every possible step from a state.
func (m *search) expand(at int32) {
	s, stuck := m.states[at], true
	for i := range m.programs {
		a := &s.actors[i]
		if a.is(dead) {
			continue
		}
		v := visit{from: at, actor: int8(i)}
		if m.ended(&s, i) {
			continue
		}
		now := m.programs[i].steps[a.pc]
		next := s
		if to := now.run(&next); to != asleep {
			stuck = false
			pc := a.pc + 1
			if to != nil {
				pc = to.pc
			}
			m.visit(m.moved(next, i, pc), v)
			if now.or != nil {
				m.visit(m.moved(s, i, now.or.pc), v)
			}
		}
		if m.problem != "" {
			m.fail(m.problem, v)
			return
		}
		if m.mayDie(&s, i) {
			next = s
			next.actors[i].die()
			v.what = died
			m.visit(next, v)
		}
	}
	if !stuck {
		return
	}
	for i := range m.Ranks {
		if !s.actors[i].is(dead) && !m.ended(&s, i) {
			m.fail(fmt.Sprintf("rank %d waits for ever", i), visit{from: at, actor: int8(i)})
			return
		}
	}
}

// moved returns the state with an actor moved to a place.
func (m *search) moved(s state, i int, pc uint16) state {
	steps := m.programs[i].steps
	for int(pc) < len(steps) && steps[pc].run == nil {
		pc = steps[pc].or.pc
	}
	s.actors[i].pc = pc
	return s
}

func (m *search) visit(s state, v visit) {
	if v.from >= 0 {
		m.result.Transitions++
	}
	if _, known := m.index[s]; !known {
		m.index[s] = struct{}{}
		m.states = append(m.states, s)
		m.visits = append(m.visits, v)
	}
}

// fail records a problem, and the path to it, whose last step is v.
func (m *search) fail(problem string, v visit) {
	m.result.Problem = problem
	for ; v.from >= 0; v = m.visits[v.from] {
		m.result.Trace = append([]string{fmt.Sprintf("%s: %s", m.nameOf(int(v.actor)), m.describe(v))}, m.result.Trace...)
	}
}

// describe says what an actor does in a visit.
func (m *search) describe(v visit) string {
	if v.what == died {
		return "dies"
	}
	return m.programs[v.actor].steps[m.states[v.from].actors[v.actor].pc].name
}
