package trainer

import (
	"fmt"
	"slices"
	"time"

	"spmoe/collective"
)

// A straggler is a rank that takes much longer for its part of the steps than the others, which
// wait for it. A rank's score is the median of the ranks' times divided by its own time, both
// without waiting. If ranks share processors, times vary: a rank is named only if it was slow twice
// in a row.

const (
	// stragglerSteps is the number of steps that are judged together.
	stragglerSteps = 10
	// stragglerScore is the lowest score that is not slow.
	stragglerScore = 0.5
)

// stragglers detects slow ranks. It is an [observer].
type stragglers struct {
	comm   *collective.Comm
	alarms *alarms
	waited time.Duration // before the current steps
	busy   float64       // seconds of this rank in these steps
	steps  int
	slow   []int // how many times in a row each rank has been slow
}

func newStragglers(c *collective.Comm, a *alarms) *stragglers {
	return &stragglers{comm: c, alarms: a, slow: make([]int, c.Size())}
}

// Before implements [observer].
func (s *stragglers) Before(int) { s.waited = s.waiting() }

// After implements [observer]. It raises alarms about the ranks whose speed has changed.
func (s *stragglers) After(step finishedStep) error {
	news, err := s.add(step.took)
	for _, text := range news {
		s.alarms.raise("%s", text)
	}
	return err
}

// waiting returns how long this rank has waited for others so far.
func (s *stragglers) waiting() (sum time.Duration) {
	for _, k := range s.comm.Stats() {
		sum += k.Wait
	}
	return sum
}

// add counts a step. Every stragglerSteps steps it returns a text about each rank whose speed has
// changed. It is collective.
func (s *stragglers) add(took time.Duration) (news []string, err error) {
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
	const instant = 1e-9 // shorter times are never slow
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
