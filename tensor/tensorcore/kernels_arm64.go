//go:build arm64 && !purego

package tensorcore

import "spmoe/tensor/cpu"

var table = cpu.Table[*kernels]{
	cpu.Generic: generic,
	cpu.NEON: {columns: 8, rows: 4, bf16: chainBF16NEON, hopperFP8: chainHopperFP8NEON, blackwellFP8: chainBlackwellFP8NEON,
		split: splitGeneric, promote: promoteGeneric},
}
