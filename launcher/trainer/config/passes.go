package config

// The passes of a step. The sum over a step's sequences is a binary tree over their places in the
// global batch. A pass of all ranks must therefore be a subtree: a power of two of sequences, at a
// multiple of that number. So ranks with 7 sequences each have passes of 4, 2 and 1.

import (
	"math/bits"
	"slices"
)

// RankBatch returns the sequences per rank in the first pass of a step. No other pass has more.
// Ranks that share sequences have one.
func (c Config) RankBatch(ranks int) int {
	local := c.Batch / c.DataRanks(ranks)
	micro := local
	switch {
	case c.SharesSequences():
		return min(1, local)
	case c.PPMicrobatches > 0:
		return local / c.PPMicrobatches
	case c.MicroBatch > 0:
		micro = min(c.MicroBatch, local)
	}
	if !c.passesAreSubtrees(ranks) || micro == local && c.DataRanks(ranks) == 1 {
		return micro
	}
	if micro = floorPower(micro); c.Pipelined() { // whose passes have equally many sequences
		micro = min(micro, local&-local)
	}
	return micro
}

// passesAreSubtrees reports whether passes can be cut so that results do not depend on them. With
// other numbers of ranks no pass except that of the whole batch is a subtree.
func (c Config) passesAreSubtrees(ranks int) bool {
	recipe, err := c.Recipe()
	data := c.DataRanks(ranks)
	return err == nil && !recipe.DependsOnPasses() && c.EPCapacity == 0 && !c.ChainPasses && data == floorPower(data)
}

// floorPower returns the largest power of two that is at most n, or n if n is below 1.
func floorPower(n int) int {
	if n < 1 {
		return n
	}
	return 1 << (bits.Len(uint(n)) - 1)
}

// Passes returns the number of passes per step: all ranks run the same.
func (c Config) Passes(ranks int) int {
	whole, rest := c.countPasses(ranks)
	return whole + len(rest)
}

// PassSizes returns the sequences per rank in each pass of a step. None has more than an earlier
// one.
func (c Config) PassSizes(ranks int) (sizes []int) {
	whole, rest := c.countPasses(ranks)
	return append(slices.Repeat([]int{c.RankBatch(ranks)}, whole), rest...)
}

// countPasses returns the number of passes with RankBatch sequences, and the sizes of later ones.
func (c Config) countPasses(ranks int) (whole int, rest []int) {
	data, micro := c.DataRanks(ranks), max(c.RankBatch(ranks), 1)
	local := c.Batch / data
	whole, left := local/micro, local%micro
	if data == 1 || !c.passesAreSubtrees(ranks) { // the end of the tree may have any number
		if left > 0 {
			rest = []int{left}
		}
		return whole, rest
	}
	for ; left > 0; left -= rest[len(rest)-1] {
		rest = append(rest, floorPower(left))
	}
	return whole, rest
}

// CutsSubtrees reports whether passes are no subtrees of the sum over the global batch, or ranks
// have no subtrees of a pass. Results then depend on the number of ranks.
func (c Config) CutsSubtrees(ranks int) bool {
	data := c.DataRanks(ranks)
	whole, rest := c.countPasses(ranks)
	sizes := append(rest, c.RankBatch(ranks))
	odd := slices.ContainsFunc(sizes, func(n int) bool { return n != floorPower(n) })
	if data == 1 {
		return whole+len(rest) > 1 && c.RankBatch(ranks) != floorPower(c.RankBatch(ranks))
	}
	return odd || whole+len(rest) > 1 && data != floorPower(data)
}

// CutsHosts reports whether hosts, the first rank of each in first, have ranks that are no subtree
// of the sum over ranks. Equal hosts add up the dense gradients of their own ranks before others.
func (c Config) CutsHosts(ranks int, first []int) bool {
	l := c.LayoutOrDefault(ranks)
	for stage := range l.PP {
		on := l.OnHosts(stage, first)
		if len(on) > 1 && slices.Min(on) == slices.Max(on) && on[0] != floorPower(on[0]) {
			return true // those that share sequences are a power of two
		}
	}
	return false
}
