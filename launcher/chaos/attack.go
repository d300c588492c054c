//go:build linux

package chaos

// Attacks: what is done to the processes of a run under way.

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"spmoe/internal/fault"
	"spmoe/launcher/spmd"
)

// attack is one fault, and what came of it.
type attack struct {
	Kind  string        `json:"kind"`
	Rank  int           `json:"rank"` // -1: a spare
	Place string        `json:"place,omitempty"`
	Step  int           `json:"step"`
	Made  bool          `json:"made"` // false: the run ended before
	Found time.Duration `json:"detected_ns,omitempty"`
	Goes  time.Duration `json:"resumed_ns,omitempty"` // all ranks
	Done  time.Duration `json:"redone_ns,omitempty"`  // the step that was under way

	processes []int // that it makes fail
	victim    int   // the process that notes when it strikes; 0: nobody does
	ordered   time.Time
	alarms    bool // it lets no process fail, but is to be noticed
	vain      bool // it may change nothing: a bit that a sum rounds away
	seen      int  // the step at which its victim was seen to have carried it out; 0: not yet
	began     time.Time
}

// maker makes a fault, and says whether it was made.
type maker func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool

// kinds are the faults of a mix.
func kinds() map[string]maker {
	return map[string]maker{
		"kill":     killRank,
		"stop":     stopRank,
		"segv":     anywhere(fault.Segv),
		"exit0":    anywhere(fault.Exit0),
		"exit1":    anywhere(fault.Exit1),
		"panic":    anywhere(fault.Panic),
		"loop":     anywhere(fault.Loop),
		"slow":     slowRank,
		"two":      killTwo,
		"spare":    killSpare,
		"recovery": killRecovering,
		"save":     killSaving,
		"nan":      harm(fault.NaN, fault.InGradient, anyOf),
		"weight":   harm(fault.Flip, fault.InWeights, anyOf),
		"state":    harm(fault.Flip, fault.InState, anyOf),
		"full":     harm(fault.Full, fault.InWrite, 1),
	}
}

// flips are the faults that a replay of every step must find.
func flips() map[string]maker {
	return map[string]maker{
		"gradient": inVain(harm(fault.Flip, fault.InGradient, anyOf)),
		"message":  inVain(harm(fault.Flip, fault.InMessage, anyOf)),
		"weight":   harm(fault.Flip, fault.InWeights, anyOf),
		"state":    harm(fault.Flip, fault.InState, anyOf),
	}
}

// attack makes a fault of a kind, waits until it is overcome, and measures. step is when it is due.
func (s *session) attack(ctx context.Context, r *run, kind string, make maker, step int, pause time.Duration) *attack {
	a := &attack{Kind: kind, Rank: s.rng.IntN(s.Ranks), Step: step}
	wait := time.Duration(s.rng.Int64N(int64(pause) + 1))
	if !r.await(ctx, func() bool { return r.step >= step }) || !r.sleep(ctx, wait) {
		return a
	}
	a.Made = make(ctx, r, s.rng, a)
	if a.Made && kind != "spare" {
		r.await(ctx, func() bool { return r.overcome(a) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.measure(r)
	return a
}

// sleep passes some time, unless the run ends before.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	r.await(ctx, func() bool { return false })
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended
}

// overcome says whether the step that an attack has hit is complete. The caller holds r.mu.
func (r *run) overcome(a *attack) bool {
	if a.alarms {
		at, _, ok := r.struck(a)
		if ok && a.seen == 0 {
			a.seen = r.step
		}
		return ok && (r.alarmed.After(at) && r.stepped.After(r.alarmed) || a.vain && r.step > a.seen+2)
	}
	found := 0
	for _, e := range r.events {
		switch {
		case e.Kind == spmd.Detected && slices.Contains(a.processes, e.Process):
			found++
		case e.Kind == spmd.Redone && found == len(a.processes):
			return true
		}
	}
	return false
}

// measure finds the times of an attack in the run's events. The caller holds r.mu.
func (a *attack) measure(r *run) {
	if a.victim != 0 {
		at, order, ok := r.struck(a)
		if a.Made = ok; !ok {
			return
		}
		if a.began.IsZero() {
			a.began, a.Place = at, order.Place.String()
		}
	}
	if a.alarms && r.alarmed.After(a.began) {
		a.Found, a.Done = r.alarmed.Sub(a.began), max(0, r.stepped.Sub(a.began))
	}
	if len(a.processes) == 0 {
		return
	}
	found := 0
	for _, e := range r.events {
		switch after := e.Time.Sub(a.began); {
		case e.Kind == spmd.Detected && slices.Contains(a.processes, e.Process):
			if found++; found == 1 {
				a.Found = after
			}
		case found == len(a.processes) && e.Kind == spmd.Resumed && a.Goes == 0:
			a.Goes = after
		case found == len(a.processes) && e.Kind == spmd.Redone && a.Done == 0:
			a.Done = after
		}
	}
}

// struck says when the victim of an attack has carried out its order, and what that was; ok is
// false if it has not.
func (r *run) struck(a *attack) (at time.Time, o fault.Order, ok bool) {
	at, o, ok = fault.Struck(r.notes, a.victim)
	return at, o, ok && at.After(a.ordered) // not one of before, which it has survived
}

// signal sends a signal to the process of a rank, which is to fail by it.
func (r *run) signal(a *attack, rank int, s syscall.Signal) bool {
	pid := r.process(rank)
	if a.began.IsZero() {
		a.began = time.Now()
	}
	if syscall.Kill(pid, s) != nil {
		return false
	}
	a.processes = append(a.processes, pid)
	return true
}

// order gives an order to the process of a rank, as soon as it listens.
func (r *run) order(ctx context.Context, rank int, o fault.Order) (pid int, ok bool) {
	for {
		pid = r.process(rank)
		if fault.Give(r.notes, pid, o) == nil {
			return pid, true
		}
		if !r.sleep(ctx, time.Millisecond) || ctx.Err() != nil {
			return pid, false
		}
	}
}

func killRank(_ context.Context, r *run, _ *rand.Rand, a *attack) bool {
	return r.signal(a, a.Rank, syscall.SIGKILL)
}

// stopRank stops a process, and lets it go on when another has taken its place: there must be
// nobody who does.
func stopRank(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	if !r.signal(a, a.Rank, syscall.SIGSTOP) {
		return false
	}
	r.await(ctx, func() bool { return r.overcome(a) })
	return syscall.Kill(a.processes[0], syscall.SIGCONT) != nil
}

// anyOf is of how many passings one is chosen where every step has some. Of a checkpoint it must be
// the first: a later one may be in the last checkpoint, without which the run fails.
const anyOf = 10

// anywhere lets a rank do something to itself at some place of a step.
func anywhere(action fault.Action) maker {
	return func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
		return r.ordered(ctx, rng, a, action, fault.Place.Often, anyOf)
	}
}

// killSaving kills a rank in the next checkpoint.
func killSaving(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
	return r.ordered(ctx, rng, a, fault.Kill, func(p fault.Place) bool { return p >= fault.InSnapshot && p <= fault.InPrune }, 1)
}

// ordered lets a rank do something to itself at one of some places, one of the next times that it
// passes it.
func (r *run) ordered(ctx context.Context, rng *rand.Rand, a *attack, action fault.Action, where func(fault.Place) bool, most int64) bool {
	all := slices.DeleteFunc(fault.Places(), func(p fault.Place) bool { return !where(p) })
	place := all[rng.IntN(len(all))]
	if place.Leads() {
		a.Rank = 0
	}
	a.ordered = time.Now()
	pid, ok := r.order(ctx, a.Rank, fault.Order{Action: action, Place: place, Count: 1 + rng.Int64N(most)})
	a.processes, a.victim = []int{pid}, pid
	return ok
}

// harm lets something happen to what a rank works with, that ends no process by itself. Only if the
// optimizer's state is damaged does its owner give up, so that all go back to the one before.
func harm(action fault.Action, place fault.Place, most int64) maker {
	return func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
		ok := r.ordered(ctx, rng, a, action, func(p fault.Place) bool { return p == place }, most)
		if a.alarms = place != fault.InState; a.alarms {
			a.processes = nil
		}
		return ok
	}
}

// slowRank makes a rank slow, and kills it after some time: nothing fails by it meanwhile.
func slowRank(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	if _, ok := r.order(ctx, a.Rank, fault.Order{Action: fault.Slow, Place: fault.BeforeMeeting, Count: 1}); !ok {
		return false
	}
	return r.sleep(ctx, time.Second) && r.signal(a, a.Rank, syscall.SIGKILL)
}

// inVain makes a fault that may have no effect.
func inVain(make maker) maker {
	return func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
		a.vain = true
		return make(ctx, r, rng, a)
	}
}

func killTwo(_ context.Context, r *run, _ *rand.Rand, a *attack) bool {
	return r.signal(a, a.Rank, syscall.SIGKILL) && (len(r.ranks) == 1 || r.signal(a, (a.Rank+1)%len(r.ranks), syscall.SIGKILL))
}

func killSpare(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	a.Rank = -1
	r.mu.Lock()
	spares := slices.Clone(r.spares)
	r.mu.Unlock()
	if len(spares) == 0 || syscall.Kill(spares[0], syscall.SIGKILL) != nil {
		return false
	}
	return r.await(ctx, func() bool { return !slices.Contains(r.spares, spares[0]) })
}

// killRecovering kills a rank, and another one while it recovers from that.
func killRecovering(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
	if len(r.ranks) == 1 || !r.ordered(ctx, rng, a, fault.Kill, fault.Place.Heals, 1) {
		return false
	}
	a.began = time.Now()
	return r.signal(a, (a.Rank+1)%len(r.ranks), syscall.SIGKILL)
}
