package pipeline

import "fmt"

// Check returns an error unless every list can be executed: each stage is on one rank and has every
// micro-batch forwards and backwards exactly once, in an order that is possible, and no rank waits
// forever. The error names the first action that is wrong.
func (s *Schedule) Check() error {
	if err := s.checkComplete(); err != nil {
		return fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	if _, err := s.run(); err != nil {
		return fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	return nil
}

// place is where an action is in the lists.
type place struct{ rank, slot int }

func (p place) String() string { return fmt.Sprintf("action %d of rank %d", p.slot, p.rank) }

// checkComplete checks everything except that ranks wait for each other.
func (s *Schedule) checkComplete() error {
	if s.Stages < 1 || s.Microbatches < 1 || len(s.Ranks) < 1 {
		return fmt.Errorf("%d stages, %d micro-batches and %d ranks: there is at least one of each", s.Stages, s.Microbatches, len(s.Ranks))
	}
	holders, at := s.Holders(), map[Action]place{}
	for rank, list := range s.Ranks {
		for i, slot := range list {
			for _, a := range slot {
				here := place{rank, i}
				switch before, twice := at[a]; {
				case a.Stage < 0 || a.Stage >= s.Stages:
					return fmt.Errorf("%v, %v: there are stages 0 to %d", a, here, s.Stages-1)
				case a.Microbatch < 0 || a.Microbatch >= s.Microbatches:
					return fmt.Errorf("%v, %v: there are micro-batches 0 to %d", a, here, s.Microbatches-1)
				case holders[a.Stage] != rank:
					return fmt.Errorf("%v, %v: rank %d has stage %d", a, here, holders[a.Stage], a.Stage)
				case twice:
					return fmt.Errorf("%v, %v: it is %v, too", a, here, before)
				}
				at[a] = here
			}
		}
	}
	for stage := range s.Stages {
		for m := range s.Microbatches {
			if err := checkPasses(at, stage, m); err != nil {
				return err
			}
		}
	}
	return s.checkReduced()
}

// checkPasses checks the passes of a micro-batch through a stage: F, and then B, or I and then W.
func checkPasses(at map[Action]place, stage, m int) error {
	need := []Kind{Forward, Backward}
	_, full := at[Action{stage, Backward, m}]
	_, input := at[Action{stage, InputGrad, m}]
	_, weight := at[Action{stage, WeightGrad, m}]
	switch {
	case full && (input || weight):
		return fmt.Errorf("%v is there, and so is a part of it, %v or %v", Action{stage, Backward, m}, Action{stage, InputGrad, m}, Action{stage, WeightGrad, m})
	case input || weight:
		need = []Kind{Forward, InputGrad, WeightGrad}
	}
	var before place
	for i, k := range need {
		a := Action{stage, k, m}
		here, ok := at[a]
		if !ok {
			if !full && !input && !weight && k == Backward {
				return fmt.Errorf("%v is missing: neither %[1]v nor %v is in the list of a rank", a, Action{stage, InputGrad, m})
			}
			return fmt.Errorf("%v is missing", a)
		}
		if i > 0 && here.slot <= before.slot {
			return fmt.Errorf("%v, %v, does not come after %v", a, here, Action{stage, need[i-1], m})
		}
		before = here
	}
	return nil
}

// checkReduced checks that the gradients of a stage are reduced after its last backward pass, if
// the lists say when.
func (s *Schedule) checkReduced() error {
	for rank, list := range s.Ranks {
		reduced := map[int]place{}
		for i, slot := range list {
			for _, a := range slot {
				if before, ok := reduced[a.Stage]; ok {
					return fmt.Errorf("%v, %v, comes after %v, %v", a, place{rank, i}, Action{Stage: a.Stage, Kind: ReduceGrad}, before)
				}
				if a.Kind == ReduceGrad {
					reduced[a.Stage] = place{rank, i}
				}
			}
		}
	}
	return nil
}
