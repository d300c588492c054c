//go:build amd64 && !purego

package tensorcore

import (
	"slices"
	"unsafe"

	"spmoe/tensor/cpu"
)

var table = cpu.Table[*kernels]{
	cpu.Generic: generic,
	cpu.AVX2: {columns: 16, rows: 2, bf16: chainBF16AVX2, hopperFP8: chainHopperFP8AVX2, blackwellFP8: chainBlackwellFP8AVX2,
		split: splitter{8, split32AVX2, split16AVX2}.split, promote: promoter(promoteAVX2)},
	cpu.AVX512: {columns: 32, rows: 4, bf16: chainBF16AVX512, hopperFP8: chainHopperFP8AVX512, blackwellFP8: chainBlackwellFP8AVX512,
		split: splitter{16, split32AVX512, split16AVX512}.split, promote: promoter(promoteAVX512)},
}

// A splitter has kernels for vectors of lanes numbers of 32 and 16 bits.
type splitter struct {
	lanes      int
	fp32, bf16 func(values *float32, exponents *uint32, leasts *int32, from unsafe.Pointer, b int32, n int)
}

// split is splitGeneric.
func (s splitter) split(values []float32, exponents []uint32, leasts []int32, from unsafe.Pointer, isBF16 bool, b int) {
	n := 0
	if least := slices.Min(leasts); least >= int32(b-bias) {
		n = len(values) / s.lanes
	}
	split, size := s.fp32, 4
	if isBF16 {
		split, size = s.bf16, 2
	}
	if n > 0 {
		split(&values[0], &exponents[0], &leasts[0], from, int32(b), n)
	}
	done := n * s.lanes
	if done == len(values) {
		return // from+done may be outside the operand's memory, where the collector allows no pointer
	}
	splitGeneric(values[done:], exponents[done:], leasts[done:], unsafe.Add(from, done*size), isBF16, b)
}

func promoter(kernel func(totals, sums *float32, a float32, b *float32)) func(totals, sums []float32, a float32, b []float32) {
	return func(totals, sums []float32, a float32, b []float32) { kernel(&totals[0], &sums[0], a, &b[0]) }
}
