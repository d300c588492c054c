//go:build linux

package chaos

// Attacks: the faults that are injected into the processes of a run.

import (
	"context"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"spmoe/internal/fault"
	"spmoe/launcher/spmd"
)

// attack is one fault and its effects.
type attack struct {
	Kind     string
	Rank     int // -1: a standby process
	Place    string
	Step     int
	Made     bool          // false: the run ended first
	Detected time.Duration // since it began, as the other times; 0: unknown
	Resumed  time.Duration // when all ranks had resumed
	Redone   time.Duration // when the interrupted step was redone

	processes []int // processes that it makes fail
	victim    int   // the process that logs when the fault fires; 0: none does
	ordered   time.Time
	alarms    bool // no process fails, but an alarm must report it
	vanishes  bool // it may have no effect: a sum may round the bit away
	seen      int  // the step at which its victim had fired, as first observed; 0: not yet
	began     time.Time
}

// injector injects a fault. It returns false if it could not.
type injector func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool

// row is a row of the table of faults.
type row struct {
	modes  string // that inject it; a mode of one fault has its name
	inject injector
}

// faults is the table of the faults that are injected into processes. Each failure of a process is
// a fault without a row, and so is a flipped bit at each place with data that every step passes.
func faults() map[string]row {
	table := map[string]row{
		"kill":     {"mix kill", killRank},
		"stop":     {"mix stop", stopRank},
		"slow":     {"mix", slowRank},
		"two":      {"mix", killTwo},
		"spare":    {"mix", killSpare},
		"recovery": {"mix", killRecovering},
		"save":     {"mix", killSaving},
		"full":     {"mix", corrupt(fault.Full, fault.InWrite, 1)},
		"nan":      {"mix", corrupt(fault.NaN, fault.InGradient, anyOf)},
	}
	for action := range fault.Slow {
		if _, has := table[action.String()]; !has {
			table[action.String()] = row{"mix", failAnywhere(action)}
		}
	}
	for _, p := range fault.Places() {
		name, flip := path.Base(p.String()), corrupt(fault.Flip, p, anyOf)
		switch {
		case !p.Often() || !p.Data():
		case p.Sums():
			table[name] = row{"bits", mayVanish(flip)}
		default:
			table[name] = row{"mix bits", flip}
		}
	}
	return table
}

// faultsOf returns the names of the faults of a mode.
func faultsOf(mode string) (names []string) {
	for name, row := range faults() {
		if slices.Contains(strings.Fields(row.modes), mode) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// attack injects a fault at a step, waits for recovery, and measures the times.
func (s *session) attack(ctx context.Context, r *run, kind string, step int, pause time.Duration) *attack {
	a := &attack{Kind: kind, Rank: s.rng.IntN(s.Ranks), Step: step}
	wait := time.Duration(s.rng.Int64N(int64(pause) + 1))
	if !r.await(ctx, func() bool { return r.step >= step }) || !r.sleep(ctx, wait) {
		return a
	}
	a.Made = faults()[kind].inject(ctx, r, s.rng, a)
	if a.Made && kind != "spare" {
		r.await(ctx, func() bool { return r.recovered(a) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.measure(r)
	return a
}

// sleep waits for some time. It returns false if the run ends first.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	r.await(ctx, func() bool { return false })
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended
}

// recovered reports whether the step that an attack hit is complete. The caller holds r.mu.
func (r *run) recovered(a *attack) bool {
	if a.alarms {
		at, _, ok := r.firedOrder(a)
		if ok && a.seen == 0 {
			a.seen = r.step
		}
		return ok && (r.alarmed.After(at) && r.stepped.After(r.alarmed) || a.vanishes && r.step > a.seen+2)
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

// measure takes the times of an attack from the run's events. The caller holds r.mu.
func (a *attack) measure(r *run) {
	if a.victim != 0 {
		at, order, ok := r.firedOrder(a)
		if a.Made = ok; !ok {
			return
		}
		if a.began.IsZero() {
			a.began, a.Place = at, order.Place.String()
		}
	}
	if a.alarms && r.alarmed.After(a.began) {
		a.Detected, a.Redone = r.alarmed.Sub(a.began), max(0, r.stepped.Sub(a.began))
	}
	if len(a.processes) == 0 {
		return
	}
	found := 0
	for _, e := range r.events {
		switch after := e.Time.Sub(a.began); {
		case e.Kind == spmd.Detected && slices.Contains(a.processes, e.Process):
			if found++; found == 1 {
				a.Detected = after
			}
		case found == len(a.processes) && e.Kind == spmd.Resumed && a.Resumed == 0:
			a.Resumed = after
		case found == len(a.processes) && e.Kind == spmd.Redone && a.Redone == 0:
			a.Redone = after
		}
	}
}

// firedOrder returns the order that the victim of an attack has carried out, and when. It returns
// false if the victim has not done so.
func (r *run) firedOrder(a *attack) (at time.Time, o fault.Order, ok bool) {
	at, o, ok = fault.Struck(r.notes, a.victim)
	return at, o, ok && at.After(a.ordered) // exclude earlier orders, which it has survived
}

// signal sends a signal to the process of a rank, which will fail.
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

// stopRank stops a process and continues it when another has taken its place. The process must then
// be gone.
func stopRank(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	if !r.signal(a, a.Rank, syscall.SIGSTOP) {
		return false
	}
	r.await(ctx, func() bool { return r.recovered(a) })
	return syscall.Kill(a.processes[0], syscall.SIGCONT) != nil
}

// anyOf is the number of passes through a place that an order chooses from, for places that every
// step passes. For places in a checkpoint it must be the first pass: a later one may be in the last
// checkpoint, and the run fails without that.
const anyOf = 10

// failAnywhere makes a rank fail at a random place of a step.
func failAnywhere(action fault.Action) injector {
	return func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
		return r.orderAt(ctx, rng, a, action, fault.Place.Often, anyOf)
	}
}

// killSaving kills a rank during the next checkpoint.
func killSaving(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
	return r.orderAt(ctx, rng, a, fault.Kill, func(p fault.Place) bool { return p >= fault.InSnapshot && p <= fault.InPrune }, 1)
}

// orderAt orders a rank to fail at a random one of the matching places, on a random one of its next
// passes.
func (r *run) orderAt(ctx context.Context, rng *rand.Rand, a *attack, action fault.Action, where func(fault.Place) bool, most int64) bool {
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

// corrupt damages data that a rank works with. An alarm reports it, and no process ends.
func corrupt(action fault.Action, place fault.Place, most int64) injector {
	return func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
		ok := r.orderAt(ctx, rng, a, action, func(p fault.Place) bool { return p == place }, most)
		a.alarms, a.processes = true, nil
		return ok
	}
}

// slowRank slows a rank down, and kills it some time later. Being slow must not count as a failure.
func slowRank(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	if _, ok := r.order(ctx, a.Rank, fault.Order{Action: fault.Slow, Place: fault.BeforeMeeting, Count: 1}); !ok {
		return false
	}
	return r.sleep(ctx, time.Second) && r.signal(a, a.Rank, syscall.SIGKILL)
}

// mayVanish marks faults that may have no effect.
func mayVanish(make injector) injector {
	return func(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
		a.vanishes = true
		return make(ctx, r, rng, a)
	}
}

func killTwo(_ context.Context, r *run, _ *rand.Rand, a *attack) bool {
	return r.signal(a, a.Rank, syscall.SIGKILL) && (len(r.ranks) == 1 || r.signal(a, (a.Rank+1)%len(r.ranks), syscall.SIGKILL))
}

func killSpare(ctx context.Context, r *run, _ *rand.Rand, a *attack) bool {
	a.Rank = -1
	spare := 0
	ready := r.await(ctx, func() bool { // it may just be starting
		if len(r.spares) > 0 {
			spare = r.spares[0]
		}
		return spare != 0
	})
	return ready && syscall.Kill(spare, syscall.SIGKILL) == nil && r.await(ctx, func() bool { return !slices.Contains(r.spares, spare) })
}

// killRecovering kills a rank, and another one while the first is being replaced.
func killRecovering(ctx context.Context, r *run, rng *rand.Rand, a *attack) bool {
	if len(r.ranks) == 1 || !r.orderAt(ctx, rng, a, fault.Kill, fault.Place.Heals, 1) {
		return false
	}
	a.began = time.Now()
	return r.signal(a, (a.Rank+1)%len(r.ranks), syscall.SIGKILL)
}
