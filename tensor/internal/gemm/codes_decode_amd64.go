//go:build amd64 && !purego

package gemm

// The decoders of amd64.

import "spmoe/tensor/format"

var decodersAVX512 = decoders{
	format.E4M3: newLookup(format.E4M3, decodeAlongAVX512, decodeAcrossAVX512),
	format.E5M2: newLookup(format.E5M2, decodeAlongAVX512, decodeAcrossAVX512),
}

var decodersAVX2 = decoders{
	format.E4M3: newLookup(format.E4M3, alongBlocks(decodeE4M3AlongAVX2), acrossGroups(decodeE4M3AcrossAVX2)),
	format.E5M2: newLookup(format.E5M2, alongBlocks(decodeE5M2AlongAVX2), acrossGroups(decodeE5M2AcrossAVX2)),
}
