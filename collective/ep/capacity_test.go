package ep

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// limited is the batch with the choices masked that are beyond factor times the mean, and how many
// these are: the last ones of each expert in the order of tokens and slots.
func (b *batch) limited(factor float64) (*batch, int) {
	chosen := 0
	for _, e := range b.topk {
		if e >= 0 {
			chosen++
		}
	}
	most := int(math.Ceil(factor * float64(chosen) / float64(b.experts)))
	part, dropped, taken := *b, 0, make([]int, b.experts)
	part.topk = slices.Clone(b.topk)
	for i, e := range part.topk {
		if e < 0 {
			continue
		}
		if taken[e]++; taken[e] > most {
			part.topk[i] = -1
			dropped++
		}
	}
	return &part, dropped
}

// A capacity is the same as masking what is beyond it, wherever the tokens are.
func TestCapacity(t *testing.T) {
	for name, b := range cases() {
		for _, factor := range []float64{0.3, 1, 1.25, 1e12} {
			masked, _ := b.limited(factor)
			for _, by := range oneSidedWays {
				for _, np := range []int{1, 8} {
					for _, split := range splits(b.tokens(), np) {
						t.Run(fmt.Sprintf("%s/%v/%s/%v", name, factor, by.name, split), func(t *testing.T) {
							got := b.run(t, by.with("limited", Options{Capacity: factor}), tensor.BF16, split)
							got.wantSame(t, masked.reference(tensor.BF16))
						})
					}
				}
			}
		}
	}
}

// Groups of ranks with copies of the experts drop what a single group drops: the mean is that of
// all tokens, and rows are accepted in their order.
func TestCapacityOfReplicas(t *testing.T) {
	const ranks, each = 4, 10
	b := newBatch(ranks*each, 8, 3, 8, small)
	for _, factor := range []float64{0.3, 0.8, 1} {
		masked, want := b.limited(factor)
		for _, size := range []int{1, 2, ranks} { // of a group
			perRank, dropped := make([]result, ranks), atomic.Int64{}
			err := goroutines(ranks, func(world *collective.Comm) error {
				c, err := world.Split(world.Rank()/size, world.Rank())
				if err != nil {
					return err
				}
				s, err := NewOneSided(c, b.experts)
				if err != nil {
					return err
				}
				s.Options.Capacity = factor
				if err := s.Replicate(world); err != nil {
					return err
				}
				h, ex, r := &Handle{}, newExec(world), world.Rank()
				part := b.slice(r*each, (r+1)*each)
				if err := part.forward(ex, s, h, s.layout, c.Rank(), tensor.FP32, &perRank[r]); err != nil {
					return err
				}
				dropped.Add(int64(h.Dropped))
				return part.backward(ex, s, h, s.layout, c.Rank(), tensor.FP32, &perRank[r])
			})
			if err != nil {
				t.Fatal(err)
			}
			got, single := join(perRank), masked.reference(tensor.FP32)
			if !slices.Equal(got.out, single.out) || !slices.Equal(got.dx, single.dx) || !slices.Equal(got.dweights, single.dweights) {
				t.Errorf("capacity %v, groups of %d: results are not those of one group", factor, size)
			}
			if int(dropped.Load()) != want || want == 0 {
				t.Errorf("capacity %v, groups of %d: %d were dropped, want %d", factor, size, dropped.Load(), want)
			}
		}
	}
}
