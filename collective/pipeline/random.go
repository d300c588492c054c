package pipeline

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Random returns a legal schedule, for tests of what runs schedules: all actions in any order in
// which they are possible one after the other. Each rank has at least one of the stages.
func Random(rng *rand.Rand, ranks, stages, microbatches int) *Schedule {
	s := &Schedule{Name: "random", Stages: stages, Microbatches: microbatches, Ranks: make([][]Slot, ranks)}
	holder := make([]int, stages)
	for stage := range holder {
		if holder[stage] = stage; stage >= ranks {
			holder[stage] = rng.IntN(ranks)
		}
	}
	left, done := s.randomActions(rng), map[Action]float64{}
	for len(left) > 0 {
		var can []Action
		for a := range left {
			if _, missing := s.ready(Slot{a}, done); missing == nil {
				can = append(can, a)
			}
		}
		slices.SortFunc(can, func(a, b Action) int { return strings.Compare(a.String(), b.String()) })
		a := can[rng.IntN(len(can))]
		delete(left, a)
		done[a] = 0
		rank := holder[a.Stage]
		if rng.IntN(4) == 0 {
			s.Ranks[rank] = append(s.Ranks[rank], nil)
		}
		s.Ranks[rank] = append(s.Ranks[rank], Slot{a})
	}
	return s
}

// randomActions returns all actions, with some backward passes cut into I and W.
func (s *Schedule) randomActions(rng *rand.Rand) map[Action]bool {
	all := map[Action]bool{}
	for stage := range s.Stages {
		for m := range s.Microbatches {
			kinds := []Kind{Forward, Backward}
			if rng.IntN(2) == 0 {
				kinds = []Kind{Forward, InputGrad, WeightGrad}
			}
			for _, k := range kinds {
				all[Action{stage, k, m}] = true
			}
		}
	}
	return all
}
