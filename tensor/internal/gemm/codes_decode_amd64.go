//go:build amd64 && !purego

package gemm

// The decoders of amd64.

var decodersAVX512 = decoders{
	E4M3: newLookup(E4M3, decodeAlongAVX512, decodeAcrossAVX512),
	E5M2: newLookup(E5M2, decodeAlongAVX512, decodeAcrossAVX512),
	INT8: newLookup(INT8, decodeInt8AlongAVX512, decodeInt8AcrossAVX512),
}

var decodersAVX2 = decoders{
	E4M3: newLookup(E4M3, alongBlocks(decodeE4M3AlongAVX2), acrossGroups(decodeE4M3AcrossAVX2)),
	E5M2: newLookup(E5M2, alongBlocks(decodeE5M2AlongAVX2), acrossGroups(decodeE5M2AcrossAVX2)),
	INT8: newLookup(INT8, alongBlocks(decodeInt8AlongAVX2), acrossGroups(decodeInt8AcrossAVX2)),
}
