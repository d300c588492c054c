//go:build (amd64 || arm64) && !purego

package gemm

// The table of kernels of architectures with assembly, made from their recipes.

import "spmoe/tensor/cpu"

// table holds the kernels that the recipes make.
var table = func() cpu.Table[*kernels] {
	t := cpu.Table[*kernels]{cpu.Generic: &genericKernels}
	for tier, r := range recipes {
		t[tier] = r.kernels()
	}
	return t
}()
