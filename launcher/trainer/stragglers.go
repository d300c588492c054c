package trainer

import (
	"fmt"
	"slices"
	"time"

	"spmoe/collective"
)

// A straggler is a rank that takes much longer over its part of the steps than the others do, who wait for it. A rank's score is the
// median of the ranks' times over its own, waiting for others left out. Where ranks share processors, times scatter: who is named was
// slow twice in a row.

const (
	// stragglerSteps are judged together.
	stragglerSteps = 10
	// stragglerScore is the lowest that is nothing to speak of.
	stragglerScore = 0.5
)

// stragglers looks for them.
type stragglers struct {
	comm   *collective.Comm
	waited time.Duration // before the steps under way
	busy   float64       // seconds, of this rank in these steps
	steps  int
	slow   []int // how many times in a row each rank has been
}

func newStragglers(c *collective.Comm) stragglers {
	return stragglers{comm: c, slow: make([]int, c.Size())}
}

// begin starts the clock of a step.
func (s *stragglers) begin() { s.waited = s.waiting() }

// waiting is how long this rank has waited for others so far.
func (s *stragglers) waiting() (sum time.Duration) {
	for _, k := range s.comm.Stats() {
		sum += k.Wait
	}
	return sum
}

// end counts a step that took so long. Every so many steps it returns what there is to say about each rank whose speed has changed. It is
// collective.
func (s *stragglers) end(took time.Duration) (news []string, err error) {
	s.busy += max(took-(s.waiting()-s.waited), 0).Seconds()
	if s.steps++; s.steps < stragglerSteps {
		return nil, nil
	}
	all := make([]float64, s.comm.Size())
	all[s.comm.Rank()] = s.busy
	s.steps, s.busy = 0, 0
	if err := collective.AllReduce(s.comm, all, collective.Sum); err != nil {
		return nil, fmt.Errorf("looking for stragglers: %w", err)
	}
	return s.judge(all), nil
}

// judge compares the ranks' seconds.
func (s *stragglers) judge(seconds []float64) (news []string) {
	const instant = 1e-9 // next to which no rank is slow
	usual := slices.Sorted(slices.Values(seconds))[(len(seconds)-1)/2]
	for r, t := range seconds {
		score := (usual + instant) / (t + instant)
		if score < stragglerScore {
			if s.slow[r]++; s.slow[r] == 2 {
				news = append(news, fmt.Sprintf("rank %d is slow: its part of the last %d steps took %.2f s, that of most others %.2f s or less (score %.2f)", r, stragglerSteps, t, usual, score))
			}
			continue
		}
		if s.slow[r] >= 2 {
			news = append(news, fmt.Sprintf("rank %d keeps up again (score %.2f)", r, score))
		}
		s.slow[r] = 0
	}
	return news
}

// nameStragglers counts a step that took so long, and reports who is slow.
func (r *rank) nameStragglers(took time.Duration) error {
	news, err := r.stragglers.end(took)
	for _, text := range news {
		r.alarm("%s", text)
	}
	return err
}
