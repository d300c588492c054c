//go:build amd64 && !purego

package gemm

// The families of amd64 and which of them each tier uses.

import (
	"spmoe/tensor/cpu"
)

var (
	bf16AVX512 = family{
		rows: 12, columns: 32, masked: true, rounds: true,
		tiles:   []func(*tile){nil, bf16AVX512Tiles1, bf16AVX512Tiles2, bf16AVX512Tiles3, bf16AVX512Tiles4, bf16AVX512Tiles5, bf16AVX512Tiles6, bf16AVX512Tiles7, bf16AVX512Tiles8, bf16AVX512Tiles9, bf16AVX512Tiles10, bf16AVX512Tiles11, bf16AVX512Tiles12},
		packing: packing{elem: 2, group: 16, along: packRowsAVX512, across: interleave16AVX512, acrossPanel: interleave32AVX512},
	}
	bf16SplitAVX512 = family{
		rows: 12, columns: 32, masked: true, tiles: fp32AVX512.tiles,
		packing: packing{elem: 2, split: true, group: 16, along: packRowsSplitAVX512, across: widen16AVX512, acrossPanel: widen32AVX512},
	}
	fp32AVX512 = family{
		rows: 12, columns: 32, masked: true,
		tiles:   []func(*tile){nil, fp32AVX512Tiles1, fp32AVX512Tiles2, fp32AVX512Tiles3, fp32AVX512Tiles4, fp32AVX512Tiles5, fp32AVX512Tiles6, fp32AVX512Tiles7, fp32AVX512Tiles8, fp32AVX512Tiles9, fp32AVX512Tiles10, fp32AVX512Tiles11, fp32AVX512Tiles12},
		packing: packing{elem: 4, group: 16, along: packRowsAVX512, across: copy16AVX512, acrossPanel: copy32AVX512},
	}
	bf16SplitAVX2 = family{
		rows: 6, columns: 16, tiles: fp32AVX2.tiles,
		packing: packing{elem: 2, split: true, group: 8, along: alongSplitAVX2, across: acrossSplitAVX2, acrossPanel: acrossSplitAVX2},
	}
	fp32AVX2 = family{
		rows: 6, columns: 16,
		tiles:   []func(*tile){nil, fp32AVX2Tiles1, fp32AVX2Tiles2, fp32AVX2Tiles3, fp32AVX2Tiles4, fp32AVX2Tiles5, fp32AVX2Tiles6},
		packing: packing{elem: 4, group: 8, along: alongAVX2, across: acrossAVX2, acrossPanel: acrossAVX2},
	}
)

// kernelsOf gives what a tier uses; the CPU must have the tier.
func kernelsOf(t cpu.Tier) *kernels {
	switch t {
	case cpu.AVX512BF16:
		return familyKernels(&bf16AVX512, &fp32AVX512, peakBF16AVX512, peakFP32AVX512)
	case cpu.AVX512:
		return familyKernels(&bf16SplitAVX512, &fp32AVX512, peakFP32AVX512, peakFP32AVX512)
	case cpu.AVX2:
		return familyKernels(&bf16SplitAVX2, &fp32AVX2, peakFP32AVX2, peakFP32AVX2)
	}
	return &genericKernels
}

func familyKernels(bf16, fp32 *family, peakBF16, peakFP32 func(rounds int) float64) *kernels {
	return &kernels{
		bf16:        func(s *Scratch, c, a, b View, accumulate bool) { bf16.multiply(s, c, View{}, a, b, accumulate) },
		bf16Rounded: func(s *Scratch, c, a, b View) { bf16.multiply(s, View{}, c, a, b, false) },
		fp32:        func(s *Scratch, c, a, b View, accumulate bool) { fp32.multiply(s, c, View{}, a, b, accumulate) },
		peakBF16:    peakBF16,
		peakFP32:    peakFP32,
	}
}

// A peak loop's FLOPs are rounds times instructions times lanes times 2 for each multiply-add.

func peakBF16AVX512(rounds int) float64 {
	bf16AVX512Peak(rounds)
	return float64(rounds) * 24 * 32 * 2
}

func peakFP32AVX512(rounds int) float64 {
	fp32AVX512Peak(rounds)
	return float64(rounds) * 24 * 16 * 2
}

func peakFP32AVX2(rounds int) float64 {
	fp32AVX2Peak(rounds)
	return float64(rounds) * 12 * 8 * 2
}
