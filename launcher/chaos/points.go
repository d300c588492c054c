//go:build linux

package chaos

// The test of every place in the code where a rank can be made to fail, on every rank, with one
// short run each.

import (
	"context"
	"slices"
	"strings"

	"spmoe/internal/fault"
	"spmoe/launcher/report"
)

// pointFault is a fault at a place.
type pointFault struct {
	place fault.Place
	rank  int
}

func (s *session) points(ctx context.Context) error {
	const steps = shortRun
	usual, want, err := s.reference(ctx, steps)
	if err != nil {
		return err
	}
	action, err := fault.ParseAction(s.Action)
	if err != nil {
		return err
	}
	var faults []pointFault
	for _, p := range fault.Places() {
		if !strings.Contains(p.String(), s.At) {
			continue
		}
		for rank := range s.Ranks {
			if (rank == 0 || !p.Leads()) && (s.Ranks > 1 || !p.Heals()) {
				faults = append(faults, pointFault{p, rank})
			}
		}
	}
	s.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	if s.Count > 0 && len(faults) > 0 {
		faults = slices.Repeat(faults, (s.Count+len(faults)-1)/len(faults))[:s.Count]
	}
	s.say("%s", report.Plural(len(faults), "fault"))
	for _, f := range faults {
		order := fault.Order{Action: action, Place: f.place, Count: 1}
		if f.place.Often() {
			order.Count += s.rng.Int64N(steps - 10)
		}
		if err := s.runWithFault(ctx, steps, usual, want, f, order); err != nil {
			return err
		}
	}
	return nil
}

// runWithFault starts a run in which the first process of a rank carries out an order. If the place
// is passed only after a failure, another rank is made to fail too.
func (s *session) runWithFault(ctx context.Context, steps int, usual *run, want *outcome, f pointFault, order fault.Order) error {
	a := &attack{Kind: order.Action.String(), Rank: f.rank, Place: f.place.String()}
	other := (f.rank + 1) % s.Ranks
	r, err := s.start(ctx, steps, func(rank int, generation uint32) *fault.Order {
		switch {
		case generation > 0:
		case rank == f.rank:
			return &order
		case rank == other && f.place.Heals():
			return &fault.Order{Action: fault.Kill, Place: fault.BeforeStep, Count: 7}
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	first := map[int]int{}
	for _, e := range r.events {
		if e.Kind == "started" {
			first[e.Rank] = e.Process
		}
	}
	a.victim, a.processes = first[f.rank], []int{first[f.rank]}
	a.measure(r)
	harmed := []*attack{a}
	if f.place.Heals() {
		harmed = append(harmed, &attack{processes: []int{first[other]}})
	}
	s.attacks, s.usual, s.took = append(s.attacks, a), s.usual+usual.took, s.took+r.took
	before := len(s.problems)
	if !a.Made {
		s.problem("%v was not carried out", order)
	}
	if s.judge(r, steps, want, harmed); len(s.problems) > before {
		s.say("the order of rank %d: %v", f.rank, order)
	}
	return nil
}
