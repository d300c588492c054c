package state

import (
	"slices"

	"spmoe/tensor"
)

// SumPrime combines checksums: FNV's prime.
const SumPrime = 1<<40 + 1<<8 + 0xb3

// AddSum combines the checksum of a tensor with that of the tensors before it.
func AddSum(sum uint64, ex *tensor.Exec, t tensor.Tensor) uint64 {
	return sum*SumPrime ^ tensor.Checksum(ex, t)
}

// EveryRank lists n ranks.
func EveryRank(n int) (ranks []int) {
	for rank := range n {
		ranks = append(ranks, rank)
	}
	return ranks
}

// Median returns the lower median.
func Median(seconds []float64) float64 {
	return slices.Sorted(slices.Values(seconds))[(len(seconds)-1)/2]
}
