package quant

// Kernels says which kernels of this package a tier has. Each value includes those before it.
type Kernels int

const (
	Plain Kernels = iota // none: plain Go
	Lanes                // AVX2: the kernels for any format, and for strips
	Tiles                // AVX-512: the kernels for tiles of BF16
)
