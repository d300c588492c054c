//go:build linux

package chaos

// The tests of a single long run. Faults are injected at given steps, in an order that the seed
// determines.

import (
	"context"
	"fmt"
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
	farApart   = saveEvery + 5
	afterwards = 3 * saveEvery
)

// repeated returns a mode that injects faults of one kind.
func repeated(kind string) func(*session, context.Context) error {
	return func(s *session, ctx context.Context) error {
		return s.campaign(ctx, slices.Repeat([]string{kind}, s.Count), apart)
	}
}

// bits flips single bits in the data that ranks compute with, compute and send, while every step is
// computed twice.
func (s *session) bits(ctx context.Context) error {
	// Evaluations are not computed twice.
	s.more = []string{"--guard.replay", "1", "--eval-every", "0"}
	all, names := faultsOf("bits"), []string{}
	for range s.Count {
		names = append(names, all[s.rng.IntN(len(all))])
	}
	return s.campaign(ctx, names, apart)
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
		turn := faultsOf("mix")
		if s.Spares == 0 {
			turn = slices.DeleteFunc(turn, func(name string) bool { return name == "spare" })
		}
		s.rng.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		names = append(names, turn...)
	}
	return s.campaign(ctx, names[:faults], max(farApart, int(s.Every/pace)))
}

// pace measures the time of an undisturbed step.
func (s *session) pace(ctx context.Context) (time.Duration, error) {
	const steps = 5 * saveEvery
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
func (s *session) campaign(ctx context.Context, names []string, gap int) error {
	steps := len(names)*gap + afterwards
	usual, want, err := s.reference(ctx, steps)
	if err != nil {
		return err
	}
	var attacks []*attack
	r, err := s.start(ctx, steps, nil, func(ctx context.Context, r *run) {
		for i, name := range names {
			a := s.attack(ctx, r, name, (i+1)*gap, usual.stepTime(steps))
			attacks = append(attacks, a)
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
