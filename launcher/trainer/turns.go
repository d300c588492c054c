package trainer

// Jobs of a benchmark that take turns.

import "sync"

// Turns lets jobs that live at the same time compute one after the other: job 0, 1, and so on, over
// and over. The first turn of a job is what it does before its first step.
type Turns struct {
	mu      sync.Mutex
	moved   sync.Cond
	present []bool // jobs that have not left
	now     int    // it is the turn of job now % len(present)
}

// NewTurns returns turns for a number of jobs.
func NewTurns(jobs int) *Turns {
	t := &Turns{present: make([]bool, jobs)}
	t.moved.L = &t.mu
	for i := range t.present {
		t.present[i] = true
	}
	return t
}

// Turn is the place of a job among those that take turns. A job that is alone has none: nil, whose
// methods do nothing.
type Turn struct {
	all *Turns
	job int
}

// Of returns the place of a job.
func (t *Turns) Of(job int) *Turn { return &Turn{t, job} }

// Begin waits for the job's first turn.
func (t *Turn) Begin() { t.await(0) }

// await returns when it is the turn of the job for the n-th time, counted from 0.
func (t *Turn) await(n int) {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	for t.all.now < n*len(t.all.present)+t.job {
		t.all.moved.Wait()
	}
}

// pass ends the job's turn.
func (t *Turn) pass() {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.now++
	t.all.skip()
}

// Leave says that the job takes no more turns, whether it is its turn now or not.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.present[t.job] = false
	t.all.skip()
}

// skip passes over jobs that have left, and wakes the one whose turn it is.
func (t *Turns) skip() {
	for range t.present {
		if t.present[t.now%len(t.present)] {
			break
		}
		t.now++
	}
	t.moved.Broadcast()
}
