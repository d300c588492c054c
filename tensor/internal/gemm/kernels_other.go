//go:build !amd64 || purego

package gemm

import "spmoe/tensor/cpu"

var table = cpu.Table[*kernels]{cpu.Generic: &genericKernels}

// calls is what assembly would need.
type calls struct{}
