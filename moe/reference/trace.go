package reference

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Trace is a forward pass without a mistake. A pass of the same call with a mistake begins with the
// finest module that asks for the mistake: all before it is the same in both.
type Trace struct {
	module *Module
	call   Call
	right  map[string]Tensor // the results
	before map[int]state     // each module inside, by its place in Children
	mutex  sync.Mutex
	first  map[string]int // the first module that asks for a mistake, or for all that begin so: NAME*
	place  int            // of the module that runs
}

// Trace runs a module forward, for calls that make mistakes.
func (m *Module) Trace(call Call) *Trace {
	t := &Trace{module: m, call: call, before: map[int]state{}, first: map[string]int{}}
	t.call.Backward, t.call.Mistake = false, ""
	t.right, _ = m.runFrom(t.call, t, 0) // what fails without a mistake may not with one
	return t
}

// Run returns what the module computes with a mistake.
func (t *Trace) Run(mistake string) (map[string]Tensor, error) {
	call, first := t.call, len(t.module.Children)+1
	call.Mistake = mistake
	if t.right == nil {
		return t.module.Run(call)
	}
	name, _, _ := strings.Cut(mistake, ":")
	for asked, place := range t.first {
		prefix, all := strings.CutSuffix(asked, "*")
		if name == asked || all && strings.HasPrefix(name, prefix) {
			first = min(first, place)
		}
	}
	if first > len(t.module.Children) { // nothing asks for it
		return t.right, nil
	}
	return t.module.runFrom(call, t, first)
}

// reach notes that a formula begins with the module at a place.
func (t *Trace) reach(place int, f *formula) {
	if t != nil {
		t.place, t.before[place] = place, f.state.clone()
	}
}

// ask notes that the module that runs depends on some mistakes.
func (t *Trace) ask(mistakes ...string) {
	if t == nil {
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, name := range mistakes {
		if _, before := t.first[name]; !before {
			t.first[name] = t.place
		}
	}
}

func (s state) clone() state {
	return state{maps.Clone(s.weights), maps.Clone(s.values), maps.Clone(s.chosen), maps.Clone(s.results)}
}

// is reports whether to make a mistake.
func (f *formula) is(mistake string) bool {
	f.trace.ask(mistake)
	return f.mistake == mistake
}

// begins reports whether to make a mistake whose name begins so, and returns the rest of it.
func (f *formula) begins(with string) (rest string, ok bool) {
	f.trace.ask(with + "*")
	return strings.CutPrefix(f.mistake, with)
}

// pick returns what a mistake has instead of the right value.
func pick[T any](f *formula, wrong map[string]T, right T) T {
	if f.trace != nil {
		f.trace.ask(slices.Collect(maps.Keys(wrong))...)
	}
	if value, ok := wrong[f.mistake]; ok {
		return value
	}
	return right
}

// flow returns x, without its gradient if the mistake is to be made.
func (f *formula) flow(x *node, mistake string) *node {
	if f.forward || !f.is(mistake) {
		return x
	}
	return f.detached(x)
}
