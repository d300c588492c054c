package optim

// How the state is sharded: which rank owns which weights, and where their state is in its memory.

import (
	"slices"
	"sort"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
)

// shard is the slice [lo, hi) of a segment that this rank updates.
type shard struct {
	segment
	lo, hi int      // of the group's Work and Grad
	spans  [][2]int // the ranges of the flat vectors that these are; nil: [lo, hi)
	// The ranks that sum the gradients of some adjacent slices, and publish their weights: those of
	// the group or, if hosts hold it once each, one per host. nil: nothing of it crosses ranks.
	peers    *collective.Comm
	division moe.Division // of these slices
	states   [2]state
	sums     *shardSums
}

// state holds a shard's master weights followed by the vectors of the rule.
type state []tensor.Tensor

// nameOf returns the name of a vector, such as "exp_avg of the dense group".
func (s *shard) nameOf(v Vector) string { return v.Name + " of the " + s.group.Name + " group" }

// segment is adjacent parameters of a group with one rule. Each segment is sharded by itself, so
// that every rank has its share of the work of each rule.
type segment struct {
	group      *moe.Group
	rule       Rule
	params     []*moe.Param
	begin, end int  // of the flat vectors; the last segment of a group ends with the padding
	last       bool // of its group
	// the slice of each rank that has the group, if its gradients are complete on these ranks: see
	// [moe.Group.Slices]
	counts []int
}

// segmentsOf divides a group into segments.
func segmentsOf(g *moe.Group, rule Rule) (all []segment) {
	at, first, slices := 0, 0, g.Slices()
	for i, p := range g.Params {
		if len(slices) > 0 && slices[0].First == at {
			all = append(all, segment{group: g, rule: ruleOf(rule, p), begin: at, counts: slices[0].Counts})
			first = i
			slices = slices[1:]
		} else if i == 0 || ruleOf(rule, p) != ruleOf(rule, g.Params[i-1]) {
			all = append(all, segment{group: g, rule: ruleOf(rule, p), begin: at})
			first = i
		}
		s := &all[len(all)-1]
		at += p.Len()
		s.params, s.end = g.Params[first:i+1], at
	}
	if n := len(all); n > 0 {
		s := &all[n-1]
		if s.counts != nil {
			s.counts[len(s.counts)-1] += max(at, g.Len()) - at
		}
		s.end, s.last = max(at, g.Len()), true // Len is that of what is held if hosts shard the group
	}
	return all
}

// shardsOf lists this rank's slice of each segment of the groups.
func shardsOf(groups []*moe.Group, rule Rule) (all []shard) {
	for _, g := range groups {
		for _, segment := range segmentsOf(g, rule) {
			s := shard{segment: segment, lo: segment.begin, hi: segment.end, sums: &shardSums{}}
			switch held := g.Held(); {
			case held != nil:
				s.hold(held)
			case segment.counts != nil:
				s.take(segment.counts)
			case g.Ranks != nil:
				s.take(segment.split(g.Ranks.Size()))
			}
			all = append(all, s)
		}
	}
	return all
}

// take sets this rank's slice of the segment, of slices of the given lengths. Ranks take slices in
// their order. Those of several hosts that hold the group once each take slices in the order of
// their places on their hosts, so that the slices of ranks with the same place are adjacent.
func (s *shard) take(counts []int) {
	g := s.group
	rank := g.Ranks.Rank()
	start := func(rank int) int { return moe.Division{First: s.begin, Counts: counts[:rank]}.End() }
	switch {
	case g.Across != nil:
		hosts := g.Across.Size()
		first := g.Host().Rank() * hosts
		rank = first + g.Across.Rank()
		s.peers = g.Across
		s.division = moe.Division{First: start(first), Counts: counts[first : first+hosts]}
	case !g.Shared:
		s.peers = g.Ranks
		s.division = moe.Division{First: s.begin, Counts: counts}
	}
	s.lo, s.hi = start(rank), start(rank+1)
}

// hold sets this rank's slice of a segment to its part of the given ranges, which the rank holds.
func (s *shard) hold(ranges [][2]int) {
	s.spans, s.lo, s.hi = [][2]int{}, 0, 0
	at := 0 // of the range in Work and Grad
	for _, r := range ranges {
		lo, hi := max(r[0], s.begin), min(r[1], s.end)
		if lo < hi {
			if len(s.spans) == 0 {
				s.lo = at + lo - r[0]
			}
			s.hi = at + hi - r[0]
			s.spans = append(s.spans, [2]int{lo, hi})
		}
		at += r[1] - r[0]
	}
}

// split divides a segment among ranks. It returns the lengths of their slices.
func (s segment) split(ranks int) []int {
	if s.rule.WholeMatrices() {
		return s.splitParams(ranks)
	}
	return s.splitPieces(ranks)
}

// Cut returns the function that divides units of weights with FSDP, so that each matrix has one
// owner if the rule needs it: see [moe.Mesh].
func Cut(rule Rule) func(unit []*moe.Param, ranks int) []int {
	return func(unit []*moe.Param, ranks int) []int {
		s := segment{rule: ruleOf(rule, unit[0]), params: unit}
		if !s.rule.WholeMatrices() {
			return nil
		}
		s.end = s.paramLen()
		return s.splitParams(ranks)
	}
}

// paramLen returns the elements of all parameters. The rest is padding.
func (s segment) paramLen() (n int) {
	for _, p := range s.params {
		n += p.Len()
	}
	return n
}

// splitPieces divides a segment evenly, at multiples of normPiece elements of a parameter. So the
// pieces of the norm do not depend on the number of ranks that have the group. The last rank gets
// the padding.
func (s segment) splitPieces(ranks int) []int {
	counts, n := make([]int, ranks), s.paramLen()
	begin, last, rank := 0, 0, 0 // of the parameter, of the slice, of the ranks
	for _, p := range s.params {
		for rank < ranks-1 && n*(rank+1)/ranks < begin+p.Len() {
			cut := begin + (n*(rank+1)/ranks-begin)/normPiece*normPiece
			counts[rank], last = cut-last, cut
			rank++
		}
		begin += p.Len()
	}
	counts[rank] = s.end - s.begin - last
	return counts
}

// splitParams divides a segment among ranks at parameter boundaries, so that the largest load of a
// rank is as small as possible. It exceeds the mean by at most the load of one parameter. The last
// rank gets the padding.
func (s segment) splitParams(ranks int) []int {
	loads, sum, most := s.loads(), 0, 0
	for _, l := range loads {
		sum, most = sum+l, max(most, l)
	}
	// a lower bound of the largest load; adding the load of one parameter always suffices
	low := max(most, (sum+ranks-1)/ranks)
	bound := low + sort.Search(most, func(more int) bool { return len(s.fill(loads, low+more)) <= ranks })
	counts := make([]int, ranks)
	copy(counts, s.fill(loads, bound))
	counts[ranks-1] += s.end - s.begin - s.paramLen()
	return counts
}

// loads returns what each parameter adds to the rank that owns it, half of it memory and half the
// time of an update, as shares of the segment. Memory is the elements of a matrix. Time is its
// product with its transpose, on the smaller side, as in Newton-Schulz iterations.
func (s segment) loads() []int {
	products := make([]int, len(s.params))
	sum := 0
	for i, p := range s.params {
		products[i] = p.Len() * slices.Min(p.Dims)
		sum += products[i]
	}
	mean := max(sum/max(s.paramLen(), 1), 1) // products per element
	for i, p := range s.params {
		products[i] += p.Len() * mean
	}
	return products
}

// fill fills each rank in turn with parameters, up to bound. It returns the elements of each.
func (s segment) fill(loads []int, bound int) (counts []int) {
	left := 0
	for i, p := range s.params {
		if len(counts) == 0 || loads[i] > left {
			counts, left = append(counts, 0), bound
		}
		counts[len(counts)-1] += p.Len()
		left -= loads[i]
	}
	return counts
}

// StateBytes returns the bytes of one rank's master weights and vectors.
func StateBytes(rule Rule, groups []*moe.Group) (n int) {
	for _, s := range shardsOf(groups, rule) {
		for _, v := range vectors(s.rule) {
			n += paddedBytes(s.len(), v)
		}
	}
	return n
}

// Held yields the bytes of the state of one rank, parameter by parameter, without padding.
func Held(rule Rule, groups []*moe.Group, yield func(p *moe.Param, bytes int)) {
	for _, s := range shardsOf(groups, rule) {
		each := BytesPerWeight(s.rule)
		for p := range s.parts {
			yield(p.param, each*(p.hi-p.lo))
		}
	}
}

// layOut places copy number i of the state in memory of [StateBytes].
func layOut(shards []shard, i int, memory []byte) {
	for j := range shards {
		s := &shards[j]
		for _, v := range vectors(s.rule) {
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
		begin := s.begin // of the parameter in the group
		for _, p := range s.params {
			lo, hi := max(span[0], begin), min(span[1], begin+p.Len())
			if lo < hi && !yield(part{p, lo - begin, at + lo - span[0], at + hi - span[0]}) {
				return
			}
			begin += p.Len()
		}
		at += span[1] - span[0]
	}
}
