//go:build !(amd64 || arm64) || purego

package tensorcore

import "spmoe/tensor/cpu"

var table = cpu.Table[*kernels]{cpu.Generic: generic}
