//go:build amd64 && !purego

package quant

import "spmoe/tensor/cpu"

// Table says which kernels a tier has. The tile kernels permute bytes, which AVX-512 cannot do
// without VBMI.
var Table = cpu.Table[Kernels]{cpu.Generic: Plain, cpu.AVX2: Strips, cpu.AVX512: Tiles}
