//go:build !purego

package normal

import "spmoe/tensor/cpu"

var table = cpu.Table[bool]{cpu.Generic: false, cpu.AVX512: true}
