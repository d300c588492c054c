//go:build !purego

package gemm

// The decoders of arm64.

import "spmoe/tensor/format"

var decodersNEON = decoders{
	format.E4M3: newLookup(format.E4M3, alongBlocks(decodeAlongE4M3NEON), acrossGroups(decodeAcrossE4M3NEON)),
	format.E5M2: newLookup(format.E5M2, alongBlocks(decodeAlongE5M2NEON), acrossGroups(decodeAcrossE5M2NEON)),
}
