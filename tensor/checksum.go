package tensor

// Checksums of tensors, which verify that training state has not changed.

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// checksumChunk is the number of bytes that are hashed together.
const checksumChunk = 64 << 10

// Checksum is [ChecksumBytes] of the tensor's bytes, whatever its element type and shape.
func Checksum(ex *Exec, t Tensor) uint64 { return ChecksumBytes(ex, t.Bytes()) }

// ChecksumBytes hashes each 64 KiB of x with XXH3. It returns the XXH3 of those hashes as
// little-endian numbers. The result does not depend on the number of threads.
func ChecksumBytes(ex *Exec, x []byte) uint64 {
	defer ex.Release(ex.Mark())
	n := (len(x) + checksumChunk - 1) / checksumChunk
	job := checksums{x: x, hashes: ex.New(UINT8, n*hashBytes).U8()}
	forRows(ex, n, len(x)/4, job, checksumChunks)
	return xxh3.Hash(job.hashes)
}

// checksums holds the input of ChecksumBytes and the hash of each chunk.
type checksums struct{ x, hashes []byte }

const hashBytes = 8

func checksumChunks(_ *Exec, s checksums, lo, hi int) {
	for c := lo; c < hi; c++ {
		chunk := s.x[c*checksumChunk : min((c+1)*checksumChunk, len(s.x))]
		binary.LittleEndian.PutUint64(s.hashes[c*hashBytes:], xxh3.Hash(chunk))
	}
}
