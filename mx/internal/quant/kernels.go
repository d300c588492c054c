package quant

// Kernels says which kernels of this package a tier has. Each value includes those before it.
type Kernels int

const (
	Plain  Kernels = iota // none: plain Go
	Lanes                 // NEON: the kernels for any format
	Strips                // AVX2: also those for strips of BF16
	Tiles                 // AVX-512: also those for tiles of BF16
)
