package mx

import (
	"spmoe/mx/internal/quant"
	"spmoe/tensor/cpu"
)

// kernelSet says which kernels quantise. Each set includes those before it.
type kernelSet int

const (
	plain kernelSet = iota // plain Go
	lanes                  // AVX2, any format
	tiles                  // AVX-512, for what tileable accepts
)

// kernels is the set in use; set once, only tests change it.
var kernels = kernelsOf(cpu.Best())

func kernelsOf(t cpu.Tier) kernelSet {
	switch {
	case quant.Tiles(t):
		return tiles
	case quant.Lanes(t):
		return lanes
	}
	return plain
}
