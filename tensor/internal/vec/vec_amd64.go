//go:build amd64 && !purego

package vec

import "spmoe/tensor/cpu"

func kernelsFor(t cpu.Tier) kernels {
	switch {
	case t >= cpu.AVX512:
		return avx512
	case t == cpu.AVX2:
		return avx2
	}
	return generic
}
