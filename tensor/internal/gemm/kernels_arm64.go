//go:build !purego

package gemm

// The microkernels of arm64, and the recipes that say which of them each tier uses.

import "spmoe/tensor/cpu"

var (
	bf16SplitNEON = microkernel{
		rows: 8, columns: 12, adds: true, runSteps: runSteps, tiles: fp32NEON.tiles,
		packing: packing{elem: 2, split: true, rows: packer{8, along8SplitNEON, acrossSplitNEON}, columns: packer{4, alongSplitNEON, acrossSplitNEON}},
	}
	fp32NEON = microkernel{
		rows: 8, columns: 12, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32NEONTiles1, fp32NEONTiles2, fp32NEONTiles3, fp32NEONTiles4, fp32NEONTiles5, fp32NEONTiles6, fp32NEONTiles7, fp32NEONTiles8},
		packing: packing{elem: 4, rows: packer{8, along8NEON, acrossNEON}, columns: packer{4, alongNEON, acrossNEON}},
	}
	bf16NEON = microkernel{
		rows: 8, columns: 12, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, bf16NEONTiles1, bf16NEONTiles2, bf16NEONTiles3, bf16NEONTiles4, bf16NEONTiles5, bf16NEONTiles6, bf16NEONTiles7, bf16NEONTiles8},
		packing: packing{elem: 2, quads: true, rows: packer{8, alongQuads8, acrossQuads}, columns: packer{12, alongQuads12, acrossQuads}},
	}
)

// recipes describes the tiers.
var recipes = map[cpu.Tier]*recipe{
	cpu.NEON: {
		bf16: &bf16SplitNEON, fp32: &fp32NEON,
		decoders: decodersNEON,
		peakBF16: peakFP32NEON, peakFP32: peakFP32NEON,
	},
	cpu.NEONBF16: {
		bf16: &bf16NEON, fp32: &fp32NEON,
		decoders: decodersNEON,
		peakBF16: peakBF16NEON, peakFP32: peakFP32NEON,
	},
}

// The FLOPs of a peak loop: rounds · instructions · multiply-adds per instruction · 2.

func peakBF16NEON(rounds int) float64 {
	bf16NEONPeak(rounds)
	return float64(rounds) * 24 * 16 * 2
}

func peakFP32NEON(rounds int) float64 {
	fp32NEONPeak(rounds)
	return float64(rounds) * 24 * 4 * 2
}
