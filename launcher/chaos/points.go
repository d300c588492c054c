//go:build linux

package chaos

// The test of every place where a rank can be made to fail, on every rank: a short run for each.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"spmoe/internal/fault"
)

// shot is a fault at a place.
type shot struct {
	place fault.Place
	rank  int
}

func (s *session) points(ctx context.Context) error {
	const steps = 50
	usual, want, err := s.reference(ctx, steps)
	if err != nil {
		return err
	}
	action, err := fault.ParseOrder(fmt.Sprintf("%s@%v#1", s.Action, fault.BeforeStep))
	if err != nil {
		return err
	}
	var shots []shot
	for _, p := range fault.Places() {
		if !strings.Contains(p.String(), s.At) {
			continue
		}
		for rank := range s.Ranks {
			if (rank == 0 || !p.Leads()) && (s.Ranks > 1 || !p.Heals()) {
				shots = append(shots, shot{p, rank})
			}
		}
	}
	s.rng.Shuffle(len(shots), func(i, j int) { shots[i], shots[j] = shots[j], shots[i] })
	if s.Count > 0 && len(shots) > 0 {
		shots = slices.Repeat(shots, (s.Count+len(shots)-1)/len(shots))[:s.Count]
	}
	s.say("%d shots", len(shots))
	for _, shot := range shots {
		order := fault.Order{Action: action.Action, Place: shot.place, Count: 1}
		if shot.place.Often() {
			order.Count += s.rng.Int64N(steps - 10)
		}
		if err := s.shoot(ctx, steps, usual, want, shot, order); err != nil {
			return err
		}
	}
	return nil
}

// shoot makes a run in which the first process of a rank carries out an order. Where that is due
// after a failure, another rank makes one.
func (s *session) shoot(ctx context.Context, steps int, usual *run, want *outcome, shot shot, order fault.Order) error {
	a := &attack{Kind: order.Action.String(), Rank: shot.rank, Place: shot.place.String()}
	other := (shot.rank + 1) % s.Ranks
	r, err := s.start(ctx, steps, func(rank int, generation uint32) *fault.Order {
		switch {
		case generation > 0:
		case rank == shot.rank:
			return &order
		case rank == other && shot.place.Heals():
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
	a.victim, a.processes = first[shot.rank], []int{first[shot.rank]}
	a.measure(r)
	harmed := []*attack{a}
	if shot.place.Heals() {
		harmed = append(harmed, &attack{processes: []int{first[other]}})
	}
	s.attacks, s.usual, s.took = append(s.attacks, a), s.usual+usual.took, s.took+r.took
	s.line(a)
	before := len(s.problems)
	if !a.Made {
		s.problem("%v was not carried out", order)
	}
	if s.judge(r, steps, want, harmed); len(s.problems) > before {
		s.say("the order of rank %d was %v", shot.rank, order)
	}
	return nil
}
