//go:build linux

package chaos

// The tests of a single long run. Faults are injected at given steps, in an order that the seed
// determines.

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// The steps between faults that closely follow each other. Signals act at once. Faults that a
// process injects into itself fire some steps after the order, or in the next checkpoint. After the
// last fault there are enough steps for any.
const (
	apart      = 12
	farApart   = 2 * saveEvery
	afterwards = 3 * saveEvery
)

// kills kills random ranks at random times.
func (s *session) kills(ctx context.Context) error { return s.repeated(ctx, "kill") }

// stops stops random ranks at random times, and continues them later.
func (s *session) stops(ctx context.Context) error { return s.repeated(ctx, "stop") }

func (s *session) repeated(ctx context.Context, kind string) error {
	return s.campaign(ctx, kinds(), slices.Repeat([]string{kind}, s.Count), apart)
}

// bits flips single bits in the data that ranks compute with, compute and send, while every step is
// computed twice.
func (s *session) bits(ctx context.Context) error {
	// Evaluations are not computed twice.
	s.more = []string{"--guard.replay", "1", "--eval-every", "0"}
	all, names := slices.Sorted(maps.Keys(flips())), []string{}
	for range s.Count {
		names = append(names, all[s.rng.IntN(len(all))])
	}
	return s.campaign(ctx, flips(), names, apart)
}

// mix injects faults of all kinds, in random order.
func (s *session) mix(ctx context.Context) error {
	faults := max(1, int(s.For/s.Every))
	pace, err := s.pace(ctx)
	if err != nil {
		return err
	}
	var names []string
	for len(names) < faults {
		turn := slices.Sorted(maps.Keys(kinds()))
		if s.Spares == 0 {
			turn = slices.DeleteFunc(turn, func(name string) bool { return name == "spare" })
		}
		s.rng.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		names = append(names, turn...)
	}
	return s.campaign(ctx, kinds(), names[:faults], max(farApart, int(s.Every/pace)))
}

// pace measures the time of an undisturbed step.
func (s *session) pace(ctx context.Context) (time.Duration, error) {
	const steps = 150
	r, _, err := s.reference(ctx, steps)
	if err != nil {
		return 0, err
	}
	return r.stepTime(steps), nil
}

// stepTime returns the mean time of a run's steps.
func (r *run) stepTime(steps int) time.Duration {
	return r.begin.Add(r.took).Sub(r.first) / time.Duration(steps)
}

// campaign injects faults of the given kinds into one run, at regular intervals of steps.
func (s *session) campaign(ctx context.Context, kinds map[string]injector, names []string, gap int) error {
	steps := len(names)*gap + afterwards
	usual, want, err := s.reference(ctx, steps)
	if err != nil {
		return err
	}
	var attacks []*attack
	r, err := s.start(ctx, steps, nil, func(ctx context.Context, r *run) {
		for i, name := range names {
			a := s.attack(ctx, r, name, kinds[name], (i+1)*gap, usual.stepTime(steps))
			attacks = append(attacks, a)
			s.line(a)
		}
	})
	if err != nil {
		return err
	}
	s.attacks, s.usual, s.took = append(s.attacks, attacks...), s.usual+usual.took, s.took+r.took
	s.judge(r, steps, want, attacks)
	for i, a := range attacks {
		if !a.Made {
			s.problem("fault %d, %s of rank %d at step %d, was not injected", i+1, a.Kind, a.Rank, a.Step)
		} else if a.alarms && a.Detected == 0 && !a.vanishes {
			s.problem("fault %d, %s of rank %d at step %d, was not detected", i+1, a.Kind, a.Rank, a.Step)
		}
	}
	return nil
}

// shorts starts short runs and kills one process of each at a random time, which may be before the
// first step or after the last.
func (s *session) shorts(ctx context.Context) error {
	const steps = 24
	usual, want, err := s.reference(ctx, steps)
	if err != nil {
		return err
	}
	fastest := usual.took
	for i := range s.Count {
		a := &attack{Kind: "short", Rank: s.rng.IntN(s.Ranks+s.Spares) - s.Spares}
		wait := time.Duration(s.rng.Int64N(int64(fastest)))
		r, err := s.start(ctx, steps, nil, func(ctx context.Context, r *run) {
			everyone := func() bool { return len(r.all) >= s.Ranks+s.Spares }
			if !r.await(ctx, everyone) || !r.sleep(ctx, wait) {
				return
			}
			if a.Step = r.now(); a.Rank < 0 {
				a.Made = killSpare(ctx, r, s.rng, a)
			} else {
				a.Made = killRank(ctx, r, s.rng, a)
			}
		})
		if err != nil {
			return err
		}
		a.measure(r)
		fastest = min(fastest, r.took)
		s.attacks, s.usual, s.took = append(s.attacks, a), s.usual+usual.took, s.took+r.took
		s.line(a)
		before := len(s.problems)
		if s.judge(r, steps, want, []*attack{a}); len(s.problems) > before {
			s.say("in run %d, rank %d was killed after %v", i+1, a.Rank, wait)
		}
	}
	return nil
}

// quiet injects no faults, but loads the processors with more work than they can do. No rank may
// count as failed.
func (s *session) quiet(ctx context.Context) error {
	pace, err := s.pace(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range 2 * runtime.NumCPU() {
		go loadCPU(ctx, uint64(i))
	}
	steps, detections := max(1, int(s.For/pace/4)), 0
	r, err := s.start(ctx, steps, nil, nil)
	if err != nil {
		return err
	}
	for _, e := range r.events {
		if e.Process > 0 && e.Kind != "started" {
			detections++
		}
	}
	s.judge(r, steps, nil, nil)
	s.say("quiet: %d steps of %d ranks on %d processors in %v, %d busy goroutines next to them: %d events", steps, s.Ranks, runtime.NumCPU(),
		r.took.Round(time.Second), 2*runtime.NumCPU(), detections)
	if detections > 0 {
		return fmt.Errorf("%d events", detections)
	}
	return nil
}

// loadCPU computes and allocates.
func loadCPU(ctx context.Context, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for ctx.Err() == nil {
		garbage := make([][]byte, 0, 256)
		for range cap(garbage) {
			garbage = append(garbage, make([]byte, rng.IntN(64<<10)))
		}
	}
}
