package optim

// How the state is sharded: which rank owns which weights, and where their state is in its memory.

import (
	"sort"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
)

// shard is the slice [lo, hi) of a group that this rank updates.
type shard struct {
	group  *moe.Group
	lo, hi int      // of the group's Work and Grad
	spans  [][2]int // the ranges of the flat vectors that these are; nil: [lo, hi)
	// The ranks that sum the gradients of some adjacent slices, and publish their weights: those of
	// the group or, if hosts hold it once each, one per host. nil: nothing of it crosses ranks.
	peers  *collective.Comm
	counts []int // lengths of their slices
	first  int   // where the first of these begins
	states [2]state
	seals  [2][]seals // of the vectors of a state
	found  *changes   // by seals

	gradSeals seals
}

// state holds a shard's master weights followed by the vectors of the rule.
type state []tensor.Tensor

// nameOf returns the name of a vector, such as "exp_avg of the dense group".
func (s *shard) nameOf(v Vector) string { return v.Name + " of the " + s.group.Name + " group" }

// shardsOf lists this rank's slice of each group. With whole, slices end at parameter boundaries.
func shardsOf(groups []*moe.Group, whole bool) (all []shard) {
	for _, g := range groups {
		s := shard{group: g, hi: g.Len()}
		if s.spans = g.Held(); s.spans == nil && g.Ranks != nil {
			s.take(splitGroup(g, g.Ranks.Size(), whole))
		}
		all = append(all, s)
	}
	return all
}

// take sets this rank's slice of the group, of slices of the given lengths. Ranks take slices in
// their order. Those of several hosts that hold the group once each take slices in the order of
// their places on their hosts, so that the slices of ranks with the same place are adjacent.
func (s *shard) take(counts []int) {
	g := s.group
	rank := g.Ranks.Rank()
	switch {
	case g.Across != nil:
		hosts := g.Across.Size()
		first := g.Host().Rank() * hosts
		rank = first + g.Across.Rank()
		s.peers, s.counts, s.first = g.Across, counts[first:first+hosts], total(counts[:first])
	case !g.Shared:
		s.peers, s.counts = g.Ranks, counts
	}
	s.lo = total(counts[:rank])
	s.hi = s.lo + counts[rank]
}

func total(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// exchanged returns the end of the peers' slices, which begin at s.first.
func (s *shard) exchanged() (end int) { return s.first + total(s.counts) }

// splitGroup divides a group among ranks.
func splitGroup(g *moe.Group, ranks int, whole bool) []int {
	if whole {
		return splitParams(g, ranks)
	}
	return splitPieces(g, ranks)
}

// splitPieces divides a group evenly, at multiples of normPiece elements of a parameter. So the
// pieces of the norm do not depend on the number of ranks that have the group. The last rank gets
// the padding.
func splitPieces(g *moe.Group, ranks int) []int {
	counts, n := make([]int, ranks), g.ParamLen()
	begin, last, rank := 0, 0, 0 // of the parameter, of the slice, of the ranks
	for _, p := range g.Params {
		for rank < ranks-1 && n*(rank+1)/ranks < begin+p.Len() {
			cut := begin + (n*(rank+1)/ranks-begin)/normPiece*normPiece
			counts[rank], last = cut-last, cut
			rank++
		}
		begin += p.Len()
	}
	counts[rank] = g.Len() - last
	return counts
}

// splitParams divides a group among ranks at parameter boundaries, so that the largest slice is as
// small as possible. It exceeds the mean by at most the largest parameter. The last rank gets the
// padding.
func splitParams(g *moe.Group, ranks int) []int {
	n, most := g.ParamLen(), 0
	for _, p := range g.Params {
		most = max(most, p.Len())
	}
	// a lower bound of the largest slice; adding the largest parameter always suffices
	low := max(most, (n+ranks-1)/ranks)
	bound := low + sort.Search(most, func(more int) bool { return len(fill(g, low+more)) <= ranks })
	counts := make([]int, ranks)
	copy(counts, fill(g, bound))
	counts[ranks-1] += g.Len() - n
	return counts
}

// fill fills each rank in turn with parameters, up to bound elements.
func fill(g *moe.Group, bound int) (counts []int) {
	left := 0
	for _, p := range g.Params {
		if len(counts) == 0 || p.Len() > left {
			counts, left = append(counts, 0), bound
		}
		counts[len(counts)-1] += p.Len()
		left -= p.Len()
	}
	return counts
}

// StateBytes returns the bytes of one rank's master weights and vectors.
func StateBytes(rule Rule, groups []*moe.Group) (n int) {
	for _, s := range shardsOf(groups, rule.WholeMatrices()) {
		for _, v := range vectors(rule) {
			n += paddedBytes(s.len(), v)
		}
	}
	return n
}

// layOut places copy number i of the state in memory of [StateBytes].
func layOut(shards []shard, i int, list []Vector, memory []byte) {
	for j := range shards {
		s := &shards[j]
		for _, v := range list {
			s.states[i] = append(s.states[i], tensor.FromBytes(memory, v.DType, s.len()))
			memory = memory[paddedBytes(s.len(), v):]
		}
	}
}

// paddedBytes returns the bytes of a vector of n elements in whole cache lines.
func paddedBytes(n int, v Vector) int {
	return (n*v.DType.Size() + tensor.Alignment - 1) &^ (tensor.Alignment - 1)
}

func (s *shard) len() int { return s.hi - s.lo }

func (s *shard) work() tensor.Tensor { return s.group.Work.Slice(s.lo, s.hi) }

func (s *shard) grad() tensor.Tensor { return s.group.Grad.Slice(s.lo, s.hi) }

// part is the part of a parameter in a shard: elements [lo, hi) of the shard, which begin at
// element offset of the parameter.
type part struct {
	param          *moe.Param
	offset, lo, hi int
}

// parts yields each parameter that the shard has elements of.
func (s *shard) parts(yield func(part) bool) {
	spans := s.spans
	if spans == nil {
		spans = [][2]int{{s.lo, s.hi}}
	}
	at := 0 // of the span in the shard
	for _, span := range spans {
		begin := 0 // of the parameter in the group
		for _, p := range s.group.Params {
			lo, hi := max(span[0], begin), min(span[1], begin+p.Len())
			if lo < hi && !yield(part{p, lo - begin, at + lo - span[0], at + hi - span[0]}) {
				return
			}
			begin += p.Len()
		}
		at += span[1] - span[0]
	}
}
