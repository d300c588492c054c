//go:build amd64 && !purego

package gemm

// The families of amd64 and which of them each tier uses.

import (
	"github.com/klauspost/cpuid/v2"

	"spmoe/tensor/cpu"
)

var (
	bf16AVX512 = family{
		rows: 12, columns: 32, masked: true, rounds: true, adds: true, runSteps: runSteps, across: &acrossForAVX512,
		tiles:   []func(*tile){nil, bf16AVX512Tiles1, bf16AVX512Tiles2, bf16AVX512Tiles3, bf16AVX512Tiles4, bf16AVX512Tiles5, bf16AVX512Tiles6, bf16AVX512Tiles7, bf16AVX512Tiles8, bf16AVX512Tiles9, bf16AVX512Tiles10, bf16AVX512Tiles11, bf16AVX512Tiles12},
		packing: packing{elem: 2, rows: packer{16, packRowsAVX512, interleave16AVX512}, columns: packer{16, packRowsAVX512, interleave32AVX512}},
	}
	bf16SplitAVX512 = family{
		rows: 12, columns: 32, masked: true, adds: true, runSteps: runSteps, tiles: fp32AVX512.tiles,
		packing: packing{elem: 2, split: true, rows: packer{16, packRowsSplitAVX512, widen16AVX512}, columns: packer{16, packRowsSplitAVX512, widen32AVX512}},
	}
	fp32AVX512 = family{
		rows: 12, columns: 32, masked: true, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX512Tiles1, fp32AVX512Tiles2, fp32AVX512Tiles3, fp32AVX512Tiles4, fp32AVX512Tiles5, fp32AVX512Tiles6, fp32AVX512Tiles7, fp32AVX512Tiles8, fp32AVX512Tiles9, fp32AVX512Tiles10, fp32AVX512Tiles11, fp32AVX512Tiles12},
		packing: packing{elem: 4, rows: packer{16, packRowsAVX512, copy16AVX512}, columns: packer{16, packRowsAVX512, copy32AVX512}},
	}
	bf16SplitAVX2 = family{
		rows: 6, columns: 16, adds: true, runSteps: runSteps, tiles: fp32AVX2.tiles, across: &acrossForAVX2,
		packing: packing{elem: 2, split: true, rows: packer{8, alongSplitAVX2, acrossSplitAVX2}, columns: packer{8, alongSplitAVX2, acrossSplitAVX2}},
	}
	fp32AVX2 = family{
		rows: 6, columns: 16, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX2Tiles1, fp32AVX2Tiles2, fp32AVX2Tiles3, fp32AVX2Tiles4, fp32AVX2Tiles5, fp32AVX2Tiles6},
		packing: packing{elem: 4, rows: packer{8, alongAVX2, acrossAVX2}, columns: packer{8, alongAVX2, acrossAVX2}},
	}
)

// kernelsOf gives what a tier uses; the CPU must have the tier.
func kernelsOf(t cpu.Tier) *kernels {
	switch t {
	case cpu.AMX:
		r := wide(&bf16AMX, peakBF16AMX)
		r.few = upTo(0) // tiles read b in place, too, and sum as they always do
		r.integers, r.peakInt8 = &int8AMX, peakInt8AMX
		return r.kernels()
	case cpu.AVX512BF16:
		if cpuid.CPU.VendorID == cpuid.Intel {
			// There VDPBF16PS starts once in two cycles, FP32 multiply-adds twice a cycle: the same bits at twice the speed.
			return wide(&bf16SplitAVX512, peakFP32AVX512).kernels()
		}
		return wide(&bf16AVX512, peakBF16AVX512).kernels()
	case cpu.AVX512:
		r := narrow(&bf16SplitAVX512, &fp32AVX512, peakFP32AVX512)
		r.few = upTo(8) // with the kernels of AVX2
		if bytesAVX512() {
			r.integers, r.peakInt8 = &int8AVX512, peakInt8AVX512
		}
		return r.kernels()
	case cpu.AVX2:
		r := narrow(&bf16SplitAVX2, &fp32AVX2, peakFP32AVX2)
		r.integers, r.peakInt8 = &int8AVX2, peakInt8AVX2
		return r.kernels()
	}
	return &genericKernels
}

// narrow is of families that know FP32 only.
func narrow(bf16, fp32 *family, peak func(rounds int) float64) *recipe {
	return &recipe{bf16: bf16, fp32: fp32, few: upTo(16), direct: directAVX2Of, decoders: &decodersAVX2, peakBF16: peak, peakFP32: peak}
}

// wide is of a CPU that multiplies BF16. It decodes codes if it can permute bytes.
func wide(bf16 *family, peak func(rounds int) float64) *recipe {
	r := &recipe{bf16: bf16, fp32: &fp32AVX512, few: few, direct: directAVX512Of, peakBF16: peak, peakFP32: peakFP32AVX512}
	if bytesAVX512() {
		r.decoders, r.integers, r.peakInt8 = &decodersAVX512, &int8AVX512, peakInt8AVX512
	}
	return r
}

// bytesAVX512 says whether bytes can be permuted and multiplied, and their bits mapped.
func bytesAVX512() bool { return cpuid.CPU.Supports(cpuid.AVX512VBMI, cpuid.AVX512VNNI, cpuid.GFNI) }

// few is kernels.few where b in place pays: up to some rows more than arithmetic needs to catch up with reading, if sums are so long
// that adding up the vectors of each is little work.
func few(rows, k int) bool { return rows <= max(12, min(k/16, 64)) }

// upTo is kernels.few where packing b, up to so many rows, costs more than what it saves.
func upTo(most int) func(rows, k int) bool { return func(rows, _ int) bool { return rows <= most } }

// A peak loop's FLOPs are rounds times instructions times lanes times 2 for each multiply-add.

func peakBF16AVX512(rounds int) float64 {
	bf16AVX512Peak(rounds)
	return float64(rounds) * 24 * 32 * 2
}

func peakInt8AVX512(rounds int) float64 {
	int8AVX512Peak(rounds)
	return float64(rounds) * 24 * 64 * 2
}

func peakFP32AVX512(rounds int) float64 {
	fp32AVX512Peak(rounds)
	return float64(rounds) * 24 * 16 * 2
}

func peakFP32AVX2(rounds int) float64 {
	fp32AVX2Peak(rounds)
	return float64(rounds) * 12 * 8 * 2
}
