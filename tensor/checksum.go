package tensor

// Checksums of tensors, by which training state shows that it is what it was.

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// checksumChunk is the bytes of a tensor that have a hash of their own.
const checksumChunk = 64 << 10

// Checksum returns the XXH3 of the XXH3s of the tensor's bytes, 64 KiB at a time, as little-endian
// numbers. It does not depend on the number of threads, on the element type or on the shape.
func Checksum(ex *Exec, t Tensor) uint64 {
	defer ex.Release(ex.Mark())
	x := t.Bytes()
	n := (len(x) + checksumChunk - 1) / checksumChunk
	job := checksums{x: x, hashes: ex.New(UINT8, n*hashBytes).U8()}
	rowParts(ex, n, len(x)/4, job, checksumChunks)
	return xxh3.Hash(job.hashes)
}

// checksums is the arguments of Checksum, and the hash of each chunk.
type checksums struct{ x, hashes []byte }

const hashBytes = 8

func checksumChunks(_ *Exec, s checksums, lo, hi int) {
	for c := lo; c < hi; c++ {
		chunk := s.x[c*checksumChunk : min((c+1)*checksumChunk, len(s.x))]
		binary.LittleEndian.PutUint64(s.hashes[c*hashBytes:], xxh3.Hash(chunk))
	}
}
