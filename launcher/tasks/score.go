package tasks

import (
	"cmp"
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/moe"
)

// Scorer computes the scores of continuations on all ranks.
type Scorer struct {
	Comm    *collective.Comm // all ranks
	Readers *collective.Comm // the ranks that read different sequences
	// Eval evaluates sequences. It is collective. A rank may have none.
	Eval func(moe.Batch) error
	// Models are the stages of this rank. Those without the head have no losses.
	Models []*moe.Model
	Batch  int // sequences per rank and pass

	// Stop returns an error, the same on all ranks, if scoring should end early; nil: it never
	// should.
	Stop func() error
}

// score is the score of a continuation.
type score struct {
	loglikelihood float64 // nats, the sum over its tokens
	greedy        bool    // each of its tokens is the likeliest one
}

// score returns the scores of all requests, the same on all ranks. It is collective. A pass covers
// the next requests of all ranks, the longest ones first, and pads them to the same length. So
// which requests share a pass does not depend on the layout.
func (s *Scorer) score(requests []request) ([]score, error) {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(requests[b].tokens), len(requests[a].tokens)) })
	rank, ranks := s.Readers.Rank(), s.Readers.Size()
	sums := make([]float64, 2*len(requests)) // for each request: nats, and likeliest tokens
	for len(order) > 0 {
		if s.Stop != nil {
			if err := s.Stop(); err != nil {
				return nil, err
			}
		}
		n := min(s.Batch*ranks, len(order))
		seq := len(requests[order[0]].tokens) - 1
		if err := s.pass(requests, order[n*rank/ranks:n*(rank+1)/ranks], seq, sums); err != nil {
			return nil, err
		}
		order = order[n:]
	}
	if err := collective.AllReduce(s.Comm, sums, collective.Sum); err != nil {
		return nil, fmt.Errorf("summing the scores: %w", err)
	}
	scores := make([]score, len(requests))
	for i, r := range requests {
		scores[i] = score{-sums[2*i], int(sums[2*i+1]) == r.scored}
	}
	return scores, nil
}

// pass evaluates some requests, padded to seq tokens, and adds their losses and counts to sums.
func (s *Scorer) pass(requests []request, mine []int, seq int, sums []float64) error {
	b := moe.Batch{
		Inputs: make([]int32, len(mine)*seq), Targets: make([]int32, len(mine)*seq), Unscored: make([]bool, len(mine)*seq),
		Seq: seq, GlobalSequences: len(requests),
	}
	for i, index := range mine {
		tokens := requests[index].tokens
		copy(b.Inputs[i*seq:], tokens[:len(tokens)-1])
		copy(b.Targets[i*seq:], tokens[1:])
		last := len(tokens) - 1
		for at := range seq {
			b.Unscored[i*seq+at] = at < last-requests[index].scored || at >= last
		}
	}
	if err := s.Eval(b); err != nil {
		return err
	}
	for _, m := range s.Models {
		for i, nats := range m.SequenceLosses {
			sums[2*mine[i]] += nats
		}
		for i, best := range m.SequenceBest {
			sums[2*mine[i]+1] += float64(best)
		}
	}
	return nil
}
