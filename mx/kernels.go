package mx

import (
	"spmoe/mx/internal/quant"
	"spmoe/tensor/cpu"
)

// kernels says which kernels quantize; set once, only tests change it. Tiles take what tileable
// accepts, strips what stripable accepts, lanes any format.
var kernels = cpu.Choose("quantization", quant.Table)
