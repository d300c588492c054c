//go:build amd64 && !purego

package vec

import "spmoe/tensor/cpu"

var table = cpu.Table[kernels]{cpu.Generic: generic, cpu.AVX2: avx2, cpu.AVX512: avx512}
