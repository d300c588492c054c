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
	began     time.Time
	ordered   bool // the first process notes when it strikes
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
	}
}

// attack makes a fault of a kind, waits until it is overcome, and measures. step is when it is due.
func (s *session) attack(ctx context.Context, r *run, kind string, step int, pause time.Duration) *attack {
	a := &attack{Kind: kind, Rank: s.rng.IntN(s.Ranks), Step: step}
	wait := time.Duration(s.rng.Int64N(int64(pause) + 1))
	if !r.await(ctx, func() bool { return r.step >= step }) || !r.sleep(ctx, wait) {
		return a
	}
	a.Made = kinds()[kind](ctx, r, s.rng, a)
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
	if a.ordered {
		at, order, ok := fault.Struck(r.notes, a.processes[0])
		if a.Made = ok; !ok {
			return
		}
		if a.began.IsZero() {
			a.began, a.Place = at, order.Place.String()
		}
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

// stopRank stops a process, and lets it go on when another has taken its place: there must be nobody who does.
func stopRank(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	if !r.signal(a, a.Rank, syscall.SIGSTOP) {
		return false
	}
	r.await(ctx, func() bool { return r.overcome(a) })
	return syscall.Kill(a.processes[0], syscall.SIGCONT) != nil
}

// anywhere lets a rank do something to itself at some place of a step.
func anywhere(action fault.Action) maker {
	return func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
		return r.ordered(ctx, rng, a, action, fault.Place.Often, 10)
	}
}

// killSaving kills a rank in the next checkpoint.
func killSaving(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
	return r.ordered(ctx, rng, a, fault.Kill, func(p fault.Place) bool { return p >= fault.InSnapshot && p <= fault.InPrune }, 1)
}

// ordered lets a rank do something to itself at one of some places, one of the next times that it passes it.
func (r *run) ordered(ctx context.Context, rng *rand.Rand, a *attack, action fault.Action, where func(fault.Place) bool, most int64) bool {
	all := slices.DeleteFunc(fault.Places(), func(p fault.Place) bool { return !where(p) })
	place := all[rng.IntN(len(all))]
	if place.Leads() {
		a.Rank = 0
	}
	pid, ok := r.order(ctx, a.Rank, fault.Order{Action: action, Place: place, Count: 1 + rng.Int64N(most)})
	a.processes, a.ordered = []int{pid}, true
	return ok
}

// slowRank makes a rank slow, and kills it after some time: nothing fails by it meanwhile.
func slowRank(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	if _, ok := r.order(ctx, a.Rank, fault.Order{Action: fault.Slow, Place: fault.BeforeMeeting, Count: 1}); !ok {
		return false
	}
	return r.sleep(ctx, time.Second) && r.signal(a, a.Rank, syscall.SIGKILL)
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
