package exchange

// Both exchanges of one layer, for the shape of a model.

import (
	"fmt"

	"spmoe/bench"
	"spmoe/collective"
	"spmoe/collective/ep"
)

// OneSidedOverStandard returns the ratio of the round-trip times of the one-sided and the standard
// exchange, measured in turns. Every rank of c calls it with the same shape: tokens per rank,
// hidden size, choices per token, total number of experts.
func OneSidedOverStandard(c *collective.Comm, tokens, hidden, slots, experts int, quick bool) (float64, error) {
	s := newSuite(c, func(Result) {})
	if quick {
		s.rounds = 3
	}
	sh := shape{tokens, hidden, slots, experts}
	standard, err := newLayer(s, "standard", sh, ep.Options{})
	if err != nil {
		return 0, err
	}
	oneSided, err := newLayer(s, "onesided", sh, ep.Options{})
	if err != nil {
		return 0, err
	}
	roundTrip := func(l *layer) operation {
		return func() error {
			if err := l.dispatch(); err != nil {
				return err
			}
			return l.combine()
		}
	}
	times, err := s.turns(1, roundTrip(standard), roundTrip(oneSided))
	if err != nil {
		return 0, err
	}
	if wrong := oneSided.differs(standard); wrong > 0 {
		return 0, fmt.Errorf("the two exchanges differ in %d elements", wrong)
	}
	return bench.MedianRatio(times[1], times[0]), nil
}
