package generate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"spmoe/datasets"
)

// Sampling says how to sample a token from the scores of all tokens.
type Sampling struct {
	Temperature float64 // divides the scores; 0: take the best token
	TopK        int     // sample from this number of best tokens; 0: from all
	TopP        float64 // and of these from the fewest with this total probability; 1: from all
	Seed        uint64
}

// Validate returns an error for invalid settings.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("the temperature is %v: give 0 (always the best token) or more", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k is %d: give 0 (all tokens) or more", s.TopK)
	case !(s.TopP > 0 && s.TopP <= 1):
		return fmt.Errorf("top-p is %v: give more than 0, and 1 for all tokens", s.TopP)
	}
	return nil
}

// sampler samples tokens. It reuses its memory.
type sampler struct {
	Sampling
	candidates []candidate
}

// candidate is a token and its probability up to a common factor.
type candidate struct {
	token  int32
	weight float64
}

// draw samples the token at a position of a text, counted from 0. It depends only on the sampling,
// the scores and the numbers of text and position. Of equal scores the lower token is the better.
// ok is false if a score is NaN or infinite.
func (s *sampler) draw(scores []float32, text, position int) (token int32, ok bool) {
	best := 0
	for i, v := range scores {
		if v != v || v > math.MaxFloat32 {
			return 0, false
		}
		if v > scores[best] {
			best = i
		}
	}
	if len(scores) == 0 || scores[best] < -math.MaxFloat32 {
		return 0, false
	}
	if s.Temperature == 0 || s.TopK == 1 {
		return int32(best), true
	}
	return pick(s.choices(scores, scores[best]), uniform(s.Seed, uint64(text), uint64(position))), true
}

// choices returns the tokens that may be sampled. top is the best score.
func (s *sampler) choices(scores []float32, top float32) []candidate {
	all := s.candidates[:0]
	for i, v := range scores {
		all = append(all, candidate{int32(i), math.Exp((float64(v) - float64(top)) / s.Temperature)})
	}
	s.candidates = all
	if s.TopK == 0 && s.TopP == 1 {
		return all
	}
	total := sum(all)
	if s.TopK == 0 { // lower scores are too improbable to matter, and sorting takes long
		least := (1 - s.TopP) * total / float64(len(all))
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.weight < least })
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.token, b.token))
	})
	if s.TopK > 0 {
		all = all[:min(s.TopK, len(all))]
		total = sum(all)
	}
	return nucleus(all, s.TopP*total)
}

// nucleus returns the fewest of the first candidates with the given total weight.
func nucleus(all []candidate, weight float64) []candidate {
	for i, c := range all {
		if weight -= c.weight; weight <= 0 {
			return all[:i+1]
		}
	}
	return all
}

func sum(all []candidate) (total float64) {
	for _, c := range all {
		total += c.weight
	}
	return total
}

// pick returns the candidate that corresponds to a number in [0, 1).
func pick(all []candidate, u float64) int32 {
	at := u * sum(all)
	last := all[0].token
	for _, c := range all {
		if c.weight > 0 {
			last = c.token
		}
		if at -= c.weight; at < 0 {
			break
		}
	}
	return last
}

// uniform returns a number in [0, 1) that depends only on the counters, and on each of their bits.
func uniform(counters ...uint64) float64 {
	var x uint64
	for _, c := range counters {
		x = datasets.SplitMix64(x + datasets.SplitMix64(c))
	}
	return float64(x>>11) * 0x1p-53
}
