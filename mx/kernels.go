package mx

import (
	"spmoe/mx/internal/quant"
	"spmoe/tensor/cpu"
)

// kernels says which kernels quantize. It is set once, and only tests change it. Tile and
// strip kernels take what tilesSupport accepts, and lane kernels any format.
var kernels = cpu.Choose("quantization", quant.Table)
