package tensor

// Checksums of tensors, by which a copy of training state shows that it is whole.

import (
	"encoding/binary"
	"hash/crc32"
	"hash/crc64"

	"spmoe/tensor/internal/stream"
)

// checksumChunk is the bytes of a tensor that have a CRC of their own.
const checksumChunk = 64 << 10

// Checksum returns the CRC-64 (ECMA) of the CRC-32Cs of the tensor's bytes, 64 KiB at a time, as little-endian numbers. It
// does not depend on the number of threads, on the element type or on the shape.
func Checksum(ex *Exec, t Tensor) uint64 {
	defer ex.Release(ex.Mark())
	x := t.Bytes()
	n := (len(x) + checksumChunk - 1) / checksumChunk
	job := checksums{x: x, crcs: ex.New(UINT8, n*crc32.Size).U8()}
	rowParts(ex, n, len(x)/4, job, checksumChunks)
	return crc64.Checksum(job.crcs, crc64.MakeTable(crc64.ECMA))
}

// checksums is the arguments of Checksum, and the CRC of each chunk.
type checksums struct{ x, crcs []byte }

func checksumChunks(_ *Exec, s checksums, lo, hi int) {
	for c := lo; c < hi; c++ {
		chunk := s.x[c*checksumChunk : min((c+1)*checksumChunk, len(s.x))]
		binary.LittleEndian.PutUint32(s.crcs[c*crc32.Size:], checksum(chunk))
	}
}

// checksum is the CRC-32C. The CPU has so many of its instructions under way that the few loads among them wait for memory
// one after the other: it goes two to three times as fast over bytes that were asked for before.
func checksum(x []byte) uint32 {
	const piece, ahead = 4 << 10, 8 << 10
	table := crc32.MakeTable(crc32.Castagnoli)
	stream.Fetch(x[:min(ahead, len(x))])
	var crc uint32
	for len(x) > 0 {
		n := min(piece, len(x))
		if len(x) > ahead {
			stream.Fetch(x[ahead:min(ahead+n, len(x))])
		}
		crc = crc32.Update(crc, table, x[:n])
		x = x[n:]
	}
	return crc
}
