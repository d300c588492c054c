package mx

import (
	"spmoe/mx/internal/quant"
	"spmoe/tensor/cpu"
)

// kernels says which kernels quantize. It is set once, and only tests change it. The tile kernels
// take what tileable accepts, the strip kernels what stripable accepts, and the lane kernels any
// format.
var kernels = cpu.Choose("quantization", quant.Table)
