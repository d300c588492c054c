//go:build !purego

package quant

import "spmoe/tensor/cpu"

// Table says which kernels a tier has.
var Table = cpu.Table[Kernels]{cpu.Generic: Plain, cpu.NEON: Lanes}
