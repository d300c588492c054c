//go:build !amd64 || purego

package gemm

import "spmoe/tensor/cpu"

func kernelsOf(cpu.Tier) *kernels { return &genericKernels }

// calls is what assembly would need.
type calls struct{}
