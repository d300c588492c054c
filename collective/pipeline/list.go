package pipeline

// list builds the list of one rank. It counts the micro-batches of each stage, so that a schedule
// says which stage is next, and not which micro-batch.
type list struct {
	slots        []Slot
	microbatches int            // later ones are left out
	next         map[[2]int]int // by stage and kind: the next micro-batch
	owed         []Action       // weight gradients that wait
}

func newList(microbatches int) *list {
	return &list{microbatches: microbatches, next: map[[2]int]int{}}
}

// take returns the next action of a kind.
func (l *list) take(stage int, kind Kind) Action {
	key := [2]int{stage, int(kind)}
	a := Action{stage, kind, l.next[key]}
	l.next[key]++
	return a
}

// add appends actions one after the other.
func (l *list) add(actions ...Action) {
	for _, a := range actions {
		if a.Microbatch < l.microbatches {
			l.slots = append(l.slots, Slot{a})
		}
	}
}

// bubbles appends n slots in which the rank does nothing; none if n is negative.
func (l *list) bubbles(n int) {
	for range max(n, 0) {
		l.slots = append(l.slots, nil)
	}
}

// forward appends F.
func (l *list) forward(stage int) { l.add(l.take(stage, Forward)) }

// backward appends B.
func (l *list) backward(stage int) { l.add(l.take(stage, Backward)) }

// overlap appends F and B at once.
func (l *list) overlap(forward, backward int) {
	l.slots = append(l.slots, Slot{l.take(forward, Forward), l.take(backward, Backward)})
}

// inputGrad appends I. Its W is owed. The number of the micro-batch goes on from B.
func (l *list) inputGrad(stage int) {
	a := l.take(stage, Backward)
	a.Kind = InputGrad
	l.add(a)
	a.Kind = WeightGrad
	l.owed = append(l.owed, a)
}

// weightGrad appends the W that is owed longest, of a stage; -1: of any.
func (l *list) weightGrad(stage int) {
	for i, a := range l.owed {
		if stage < 0 || a.Stage == stage {
			l.add(a)
			l.owed = append(l.owed[:i:i], l.owed[i+1:]...)
			return
		}
	}
}
