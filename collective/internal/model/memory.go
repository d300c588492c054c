package model

// Weakly ordered memory: stores that others see late, and loads that happen early or late.
//
// Every actor has a buffer of stores that others do not see yet. Any of them may become visible
// next, except that stores to one word stay in order. A release store becomes visible after all
// earlier stores, and starts only after all earlier loads. An acquire load waits until the release
// stores before it are visible, as arm64's LDAR does after STLR, and no later load happens before
// it. Atomic operations that read and write, and calls of the kernel, are both. Go's atomic
// operations are of these three kinds. A plain load may happen at any time since the last acquire,
// or later, until the next release. That ignores dependencies, so some of these executions are
// impossible on hardware.

import "fmt"

// order is how a step is ordered with the memory accesses around it.
type order uint8

const (
	exchange order = iota // reads and writes
	acquire               // loads
	release               // stores
	plain                 // accesses memory that is not atomic
	local                 // accesses nothing that is shared

	// Releases that lack one of the orders: see the mutations.
	releaseBeforeStores
	releaseBeforeLoads
	releaseAfterLook
)

// forgets reports whether loads after a step of this order cannot happen before it.
func (o order) forgets() bool { return o == exchange || o == acquire }

// afterStores reports whether a store becomes visible after all earlier ones.
func (o order) afterStores() bool {
	return o == release || o == releaseBeforeLoads || o == releaseAfterLook
}

// beforeLooks reports whether later acquire loads wait until a store is visible.
func (o order) beforeLooks() bool {
	return o == release || o == releaseBeforeStores || o == releaseBeforeLoads
}

// view is what memory looks like to one actor, and how others see what it does.
type view struct {
	stores [4]write        // oldest first; those after the last have no word
	orders [4]order        // of stores
	early  [maxRanks]uint8 // 1 + what it has loaded of each rank for its next load; 0: nothing yet
	late   uint16          // place after the load that is still to happen; 0: none
}

// word is one that an actor writes.
type word uint8

const (
	slotWord word = 1 + iota // of even calls, followed by that of odd calls
	_
	lentWord
	roundWord
	finishedWord
	waitingWord
)

// write is a store to an actor's own word.
type write struct {
	to    word
	value uint8
}

// String names what others see.
func (w write) String() string {
	switch w.to {
	case lentWord:
		return fmt.Sprintf("that its buffer is lent to call %d", w.value)
	case roundWord:
		return fmt.Sprintf("its arrival at meeting %d", w.value)
	case finishedWord:
		return "that it has finished"
	case waitingWord:
		return "that it waits"
	}
	return fmt.Sprintf("its slot of call %d", w.value)
}

// see makes a store visible.
func (a *actor) see(w write) {
	switch w.to {
	case lentWord:
		a.lent = w.value
	case roundWord:
		a.round = w.value
	case finishedWord:
		a.set(finished)
	case waitingWord:
		a.set(waiting)
	default:
		a.slots[w.to-slotWord] = w.value
	}
}

// mayDrain reports whether store number k can become visible next.
func (v view) mayDrain(k int) bool {
	if k > 0 && v.orders[k].afterStores() {
		return false
	}
	for _, earlier := range v.stores[:k] {
		if earlier.to == v.stores[k].to {
			return false
		}
	}
	return v.stores[k].to != 0
}

// push adds a store.
func (v *view) push(w write, o order) {
	for k := range v.stores {
		if v.stores[k].to == 0 {
			v.stores[k], v.orders[k] = w, o
			return
		}
	}
	panic("model: more stores in flight than a view has room for")
}

// blocked reports whether a step of this order must wait for earlier accesses.
func (v view) blocked(o order) bool {
	switch o {
	case exchange:
		return v.stores[0].to != 0 || v.late != 0
	case acquire:
		for k, w := range v.stores {
			if w.to != 0 && v.orders[k].beforeLooks() {
				return true
			}
		}
	case release, releaseBeforeStores, releaseAfterLook:
		return v.late != 0
	}
	return false
}

// forget drops what has been loaded early.
func (v *view) forget() { v.early = [maxRanks]uint8{} }

// remove removes store number k.
func (v *view) remove(k int) {
	copy(v.stores[k:], v.stores[k+1:])
	copy(v.orders[k:], v.orders[k+1:])
	v.stores[3], v.orders[3] = write{}, exchange
}

// viewTable numbers the views of all actors, so that states are small.
type viewTable struct {
	list   []views
	number map[views]uint32
}

type views [maxRanks + 1]view

func newViewTable() viewTable {
	return viewTable{[]views{{}}, map[views]uint32{{}: 0}}
}

func (m *system) viewOf(s *state, i int) view { return m.views.list[s.views][i] }

// changeView changes the view of an actor.
func (m *system) changeView(s *state, i int, change func(*view)) {
	all := m.views.list[s.views]
	change(&all[i])
	number, known := m.views.number[all]
	if !known {
		number = uint32(len(m.views.list))
		m.views.list = append(m.views.list, all)
		m.views.number[all] = number
	}
	s.views = number
}

// drain makes store number k of an actor visible.
func (m *system) drain(s *state, i, k int) {
	s.actors[i].see(m.viewOf(s, i).stores[k])
	m.changeView(s, i, func(v *view) { v.remove(k) })
}

// drainAll makes all stores of an actor visible, and drops its loads.
func (m *system) drainAll(s *state, i int) {
	for m.viewOf(s, i).stores[0].to != 0 {
		m.drain(s, i, 0)
	}
	m.changeView(s, i, func(v *view) { *v = view{} })
}

// store is a step that writes words of the actor. own changes what no other actor sees.
func (p *program) store(name string, own func(me *actor), o order, writes ...write) {
	p.do(func(s *state, me *actor) {
		if own != nil {
			own(me)
		}
		for _, w := range writes {
			if p.Weak {
				p.changeView(s, p.me, func(v *view) { v.push(w, o) })
			} else {
				me.see(w)
			}
		}
	}, "%s", name)
	p.ordered(o)
}

// load reads plain memory of the other ranks.
type load struct {
	from func(s *state, r int) uint8
	use  func(me *actor, r int, got uint8)
}

// read is a step that loads from every other rank, and uses what it gets.
func (p *program) read(name string, from func(s *state, r int) uint8, use func(me *actor, r int, got uint8)) {
	l := &load{from, use}
	p.do(func(s *state, _ *actor) { p.perform(s, l) }, "%s", name)
	p.ordered(plain)
	p.steps[len(p.steps)-1].load = l
}

// perform loads what has not been loaded early.
func (p *program) perform(s *state, l *load) {
	known := p.viewOf(s, p.me).early
	p.others(func(r int) {
		got := l.from(s, r)
		if known[r] > 0 {
			got = known[r] - 1
		}
		l.use(&s.actors[p.me], r, got)
	})
	p.changeView(s, p.me, (*view).forget)
}

// nextLoad returns the place of the next load of an actor, or the end of its program.
func (m *system) nextLoad(i int, pc uint16) int {
	steps, at := m.programs[i].steps, int(pc)
	for at < len(steps) && steps[at].load == nil {
		at++
	}
	return at
}

// moveAccesses takes the steps of a rank's view: it makes a store visible, loads early, delays a
// load or completes it. It reports whether there is something that others may wait for.
func (m *search) moveAccesses(s *state, v visit) (moved bool) {
	i := int(v.actor)
	p, pc, view := m.programs[i], s.actors[i].pc, m.viewOf(s, i)
	move := func(what event, change func(next *state)) {
		next := *s
		change(&next)
		v.what = what
		m.visit(next, v)
	}
	for k := range view.stores {
		if view.mayDrain(k) {
			moved = true
			move(drained+event(k), func(next *state) { m.drain(next, i, k) })
		}
	}
	if view.late != 0 {
		move(late, func(next *state) { m.complete(next, i) })
		return true
	}
	at := m.nextLoad(i, pc)
	if at == len(p.steps) {
		return moved
	}
	if at == int(pc) {
		move(late, func(next *state) { m.delay(next, i) })
		return moved
	}
	p.others(func(r int) {
		if view.early[r] == 0 {
			got := p.steps[at].load.from(s, r)
			move(early+event(r), func(next *state) { m.loadEarly(next, i, r, got) })
		}
	})
	return moved
}

// loadEarly keeps what a rank has loaded of rank r for its next load.
func (m *search) loadEarly(s *state, i, r int, got uint8) {
	m.changeView(s, i, func(v *view) { v.early[r] = 1 + got })
}

// delay skips a load for now.
func (m *search) delay(s *state, i int) {
	pc := s.actors[i].pc + 1
	m.changeView(s, i, func(v *view) { v.late = pc })
	*s = m.moved(*s, i, pc)
}

// complete takes the load that was skipped.
func (m *search) complete(s *state, i int) {
	l := m.programs[i].steps[m.viewOf(s, i).late-1].load
	m.changeView(s, i, func(v *view) { v.late = 0 })
	m.programs[i].perform(s, l)
}

// arrivalOrder is the order of the store of an arrival.
func (p *program) arrivalOrder() order {
	switch p.Mutation {
	case ArrivalBeforeStores:
		return releaseBeforeStores
	case ArrivalBeforeLoads:
		return releaseBeforeLoads
	case ArrivalAfterLook:
		return releaseAfterLook
	}
	return release
}

// decisionOrder is the order of a load of the decision.
func (p *program) decisionOrder() order {
	if p.Mutation == DecisionUnordered {
		return local
	}
	return acquire
}
