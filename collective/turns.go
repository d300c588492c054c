package collective

// Two tasks of one rank that take turns: one goes on while the other waits for other ranks.

import (
	"iter"
	"time"
)

// Turns lets two tasks of a rank alternate. Only one of them runs at any time. It passes the turn
// when it would wait in a call of a communicator that was added, and the other task does not wait.
// If both do, the rank waits until one can go on. So the tasks may share what belongs to the rank,
// except in the middle of such calls.
//
// The tasks make their calls on different communicators, because other ranks may alternate
// differently. Only messages between boxes may share one.
type Turns struct {
	pass  func()       // gives the turn to the other task; nil: there is none, or it has ended
	waits [2]condition // what each task waits for; nil: it does not wait
	now   int          // the task that runs
}

// condition is what a rank waits for.
type condition interface{ met() bool }

// Add makes waiting in calls of c pass the turn, and in those of communicators that are split from
// it afterwards.
func (t *Turns) Add(c *Comm) { c.turns = t }

// Run runs both tasks to their ends. The first one begins. switched is called whenever the turn
// passes, with the number of the task that goes on: 0 or 1. The caller goes on as task 0.
func (t *Turns) Run(switched func(now int), first, second func()) {
	var pause func(struct{}) bool
	resume, _ := iter.Pull(func(yield func(struct{}) bool) {
		pause = yield
		second()
	})
	t.pass = func() {
		if t.now == 1 {
			pause(struct{}{})
			return
		}
		t.now = 1
		switched(1)
		if _, more := resume(); !more {
			t.pass = nil
		}
		t.now = 0
		switched(0)
	}
	defer func() { *t = Turns{} }()
	first()
	if t.pass != nil {
		t.now, t.pass = 1, nil // the second task waits by itself from now on
		switched(1)
		resume()
		switched(0)
	}
}

// other reports whether there is another task.
func (t *Turns) other() bool { return t != nil && t.pass != nil }

// blocked reports whether the other task waits for what has not come.
func (t *Turns) blocked() bool {
	w := t.waits[1-t.now]
	return w != nil && !w.met()
}

// await waits until a condition is met. Some rank rings for this one after it has made it true.
func (c *Comm) await(w condition) {
	h, own := c.group.world.heap, c.group.worldRanks[c.rank]
	for t := c.turns; t.other() && !w.met(); {
		t.waits[t.now] = w
		if t.blocked() {
			h.Await(own, c.idler(), func() bool { return w.met() || !t.blocked() })
		} else {
			c.passTurn(t)
		}
		t.waits[t.now] = nil
	}
	h.Await(own, c.idler(), func() bool { return w.met() })
}

// passTurn returns when the other task waits or has ended. The time until then is not time that
// this task has waited.
func (c *Comm) passTurn(t *Turns) {
	c.countWait(time.Now())
	mine := c.wait // the other task may wait on the same communicator
	t.pass()
	c.wait = mine
	c.wait.start = time.Now()
}
