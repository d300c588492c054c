package pipeline

import "fmt"

// Timed is a slot with its time.
type Timed struct {
	Slot       Slot
	Begin, End float64
}

// Timeline is how a schedule runs if F, I and W of all stages take the time 1 and B takes 2, if
// transfers take no time, and each action begins as early as its inputs and its rank allow. Bubbles
// that the lists have take no time of their own.
type Timeline struct {
	Ranks [][]Timed
	End   float64 // of the last action of all
	// Of each rank: the time in which it does nothing, until End
	Idle []float64
	// Of each rank: the most passes in flight at once, which is stages times micro-batches whose
	// activations it holds: from F until B or W
	InFlight []int
}

// Bubble returns the share of all ranks' time in which they do nothing.
func (t *Timeline) Bubble() float64 {
	sum := 0.0
	for _, idle := range t.Idle {
		sum += idle
	}
	return sum / (t.End * float64(len(t.Idle)))
}

// Simulate runs a schedule. It returns an error if ranks wait for each other forever.
func (s *Schedule) Simulate() (*Timeline, error) {
	t := &Timeline{}
	var err error
	if t.Ranks, err = s.run(); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	for _, list := range t.Ranks {
		if n := len(list); n > 0 {
			t.End = max(t.End, list[n-1].End)
		}
	}
	for _, list := range t.Ranks {
		busy := 0.0
		for _, one := range list {
			busy += one.End - one.Begin
		}
		t.Idle, t.InFlight = append(t.Idle, t.End-busy), append(t.InFlight, inFlight(list))
	}
	return t, nil
}

// time returns how long a slot takes.
func (s Slot) time() (t float64) {
	for _, a := range s {
		switch a.Kind {
		case Forward, InputGrad, WeightGrad:
			t++
		case Backward:
			t += 2
		}
	}
	return t
}

// inFlight returns the most passes whose activations a rank holds.
func inFlight(list []Timed) (most int) {
	now := 0
	for _, one := range list {
		for _, a := range one.Slot {
			if a.Kind == Forward {
				now++
			}
		}
		most = max(most, now)
		for _, a := range one.Slot {
			if a.Kind == Backward || a.Kind == WeightGrad {
				now--
			}
		}
	}
	return most
}

// run executes the lists, without their bubbles, in time. It returns an error if ranks wait for
// each other forever.
func (s *Schedule) run() ([][]Timed, error) {
	done := map[Action]float64{} // the time at which its result exists
	next, free, out := make([]int, len(s.Ranks)), make([]float64, len(s.Ranks)), make([][]Timed, len(s.Ranks))
	for moved := true; moved; {
		moved = false
		for r, list := range s.Ranks {
			for ; next[r] < len(list); next[r]++ {
				slot := list[next[r]]
				begin, missing := s.ready(slot, done)
				if missing != nil {
					break
				}
				moved = true
				if len(slot) == 0 {
					continue
				}
				begin = max(begin, free[r])
				free[r] = begin + slot.time()
				for _, a := range slot {
					done[a] = free[r]
				}
				out[r] = append(out[r], Timed{slot, begin, free[r]})
			}
		}
	}
	for r, list := range s.Ranks {
		if next[r] < len(list) {
			slot := list[next[r]]
			_, missing := s.ready(slot, done)
			return nil, fmt.Errorf("ranks wait for each other: %v, action %d of rank %d, waits for %v, which comes later on a rank that waits, too", slot, next[r], r, missing)
		}
	}
	return out, nil
}

// ready returns the time at which the inputs of a slot exist, or the one that is missing.
func (s *Schedule) ready(slot Slot, done map[Action]float64) (at float64, missing *Action) {
	for _, a := range slot {
		for _, input := range s.inputs(a) {
			end, ok := done[input]
			if !ok && input.Kind == InputGrad { // in one action with W
				end, ok = done[Action{input.Stage, Backward, input.Microbatch}]
			}
			if !ok {
				return 0, &input
			}
			at = max(at, end)
		}
	}
	return at, nil
}

// inputs returns the actions that an action needs. The gradient of a stage's input comes from I or
// from B.
func (s *Schedule) inputs(a Action) (all []Action) {
	switch a.Kind {
	case Forward:
		if a.Stage > 0 {
			all = append(all, Action{a.Stage - 1, Forward, a.Microbatch})
		}
	case Backward, InputGrad:
		all = append(all, Action{a.Stage, Forward, a.Microbatch})
		if a.Stage < s.Stages-1 {
			all = append(all, Action{a.Stage + 1, InputGrad, a.Microbatch})
		}
	case WeightGrad:
		all = append(all, Action{a.Stage, InputGrad, a.Microbatch})
	}
	return all
}
