//go:build arm64 && !purego

package vec

import "spmoe/tensor/cpu"

var table = cpu.Table[kernels]{cpu.Generic: generic, cpu.NEON: neon}
