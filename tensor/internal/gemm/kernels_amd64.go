//go:build amd64 && !purego

package gemm

// The microkernels of amd64, and the recipes that say which of them each tier uses.

import "spmoe/tensor/cpu"

var (
	bf16AVX512 = microkernel{
		rows: 12, columns: 32, masked: true, rounds: true, adds: true, scales: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, bf16AVX512Tiles1, bf16AVX512Tiles2, bf16AVX512Tiles3, bf16AVX512Tiles4, bf16AVX512Tiles5, bf16AVX512Tiles6, bf16AVX512Tiles7, bf16AVX512Tiles8, bf16AVX512Tiles9, bf16AVX512Tiles10, bf16AVX512Tiles11, bf16AVX512Tiles12},
		packing: packing{elem: 2, rows: packer{16, packRowsAVX512, interleave16AVX512}, columns: packer{16, packRowsAVX512, interleave32AVX512}},
	}
	bf16SplitAVX512 = microkernel{
		rows: 12, columns: 32, masked: true, adds: true, scales: true, runSteps: runSteps, tiles: fp32AVX512.tiles,
		packing: packing{elem: 2, split: true, rows: packer{16, packRowsSplitAVX512, widen16AVX512}, columns: packer{16, packRowsSplitAVX512, widen32AVX512}},
	}
	fp32AVX512 = microkernel{
		rows: 12, columns: 32, masked: true, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX512Tiles1, fp32AVX512Tiles2, fp32AVX512Tiles3, fp32AVX512Tiles4, fp32AVX512Tiles5, fp32AVX512Tiles6, fp32AVX512Tiles7, fp32AVX512Tiles8, fp32AVX512Tiles9, fp32AVX512Tiles10, fp32AVX512Tiles11, fp32AVX512Tiles12},
		packing: packing{elem: 4, rows: packer{16, packRowsAVX512, copy16AVX512}, columns: packer{16, packRowsAVX512, copy32AVX512}},
	}
	bf16SplitAVX2 = microkernel{
		rows: 6, columns: 16, adds: true, runSteps: runSteps, tiles: fp32AVX2.tiles,
		packing: packing{elem: 2, split: true, rows: packer{8, alongSplitAVX2, acrossSplitAVX2}, columns: packer{8, alongSplitAVX2, acrossSplitAVX2}},
	}
	fp32AVX2 = microkernel{
		rows: 6, columns: 16, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX2Tiles1, fp32AVX2Tiles2, fp32AVX2Tiles3, fp32AVX2Tiles4, fp32AVX2Tiles5, fp32AVX2Tiles6},
		packing: packing{elem: 4, rows: packer{8, alongAVX2, acrossAVX2}, columns: packer{8, alongAVX2, acrossAVX2}},
	}
)

// directAVX2 are the kernels for few rows.
var directAVX2 = directKernels{
	along: directLayout{most: 16, columns: directAlongColumns, kernels: []func(*direct){nil, directAlongx1AVX2, directAlongx2AVX2,
		directAlongx3AVX2, directAlongx4AVX2, directAlongx5AVX2}},
	across: directLayout{most: 6, columns: directAcrossColumns, kernels: []func(*direct){nil, directAcrossx1AVX2, directAcrossx2AVX2, directAcrossx3AVX2}},
}

// recipes describes the tiers. A tier without an entry uses that of the best tier it includes.
var recipes = map[cpu.Tier]*recipe{
	cpu.AVX2: {
		bf16: &bf16SplitAVX2, fp32: &fp32AVX2, direct: &directAVX2,
		decoders: decodersAVX2,
		peakBF16: peakFP32AVX2, peakFP32: peakFP32AVX2,
	},
	cpu.AVX512: {
		bf16: &bf16SplitAVX512, fp32: &fp32AVX512, direct: &directAVX2,
		decoders: decodersAVX2,
		peakBF16: peakFP32AVX512, peakFP32: peakFP32AVX512,
	},
	cpu.AVX512BF16: {
		bf16: &bf16AVX512, fp32: &fp32AVX512,
		decoders: decodersAVX512,
		peakBF16: peakBF16AVX512, peakFP32: peakFP32AVX512,
	},
	cpu.AMX: {
		// Tiles can also read b in place, with their usual order of sums.
		bf16: &bf16AMX, fp32: &fp32AVX512,
		decoders: decodersAVX512,
		peakBF16: peakBF16AMX, peakFP32: peakFP32AVX512,
	},
}

// The FLOPs of a peak loop: rounds · instructions · lanes · 2 per multiply-add.

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
