package trainer

// Benchmark jobs that take turns.

import "sync"

// Turns lets jobs that exist at the same time compute one after the other: job 0, 1, and so on,
// again and again. The first turn of a job is its work before its first step.
type Turns struct {
	mu      sync.Mutex
	moved   sync.Cond
	present []bool // jobs that have not left
	now     int    // job now % len(present) has the turn
}

// NewTurns returns turns for the given number of jobs.
func NewTurns(jobs int) *Turns {
	t := &Turns{present: make([]bool, jobs)}
	t.moved.L = &t.mu
	for i := range t.present {
		t.present[i] = true
	}
	return t
}

// Turn is the place of a job among those that take turns. A job that runs alone has a nil Turn,
// whose methods do nothing.
type Turn struct {
	all *Turns
	job int
}

// Of returns the place of a job.
func (t *Turns) Of(job int) *Turn { return &Turn{t, job} }

// Begin waits for the job's first turn.
func (t *Turn) Begin() { t.await(0) }

// await returns when the job has its n-th turn, counted from 0.
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

// Leave says that the job takes no more turns, whether it has the turn or not.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.present[t.job] = false
	t.all.skip()
}

// skip skips jobs that have left and wakes the one that has the turn.
func (t *Turns) skip() {
	for range t.present {
		if t.present[t.now%len(t.present)] {
			break
		}
		t.now++
	}
	t.moved.Broadcast()
}
