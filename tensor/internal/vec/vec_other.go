//go:build !amd64 || purego

package vec

import "spmoe/tensor/cpu"

func kernelsFor(cpu.Tier) kernels { return generic }
