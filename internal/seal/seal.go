// Package seal has the checksums of training state. A seal is that of [Len] adjacent elements of a
// vector. The optimizer makes seals when it writes state and compares them when it reads it, and a
// checkpoint is compared with the same seals when it is written and when it is opened.
package seal

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Len is the number of adjacent elements of a vector that one seal covers.
const Len = 1024

// Count returns the number of seals of n elements.
func Count(n int) int { return (n + Len - 1) / Len }

// Of returns the seal of x.
func Of(x []byte) uint64 { return xxh3.Hash(x) }

// Check compares x with its seal, and restores what it can: a changed byte of x, which is the only
// one whose old value gives the seal, or a changed bit of the seal. ok says that nothing had
// changed; lost says that neither can be restored.
func Check(x []byte, seal *uint64) (ok, lost bool) {
	switch have := Of(x); {
	case have == *seal:
		return true, false
	case bits.OnesCount64(have^*seal) == 1: // the seal itself has changed
		*seal = have
		return false, false
	}
	return false, !restore(x, *seal)
}

// restore changes the byte of x that makes its checksum the given one, if there is one.
func restore(x []byte, sum uint64) bool {
	for bit := range 8 { // one bit is likelier than several
		if restoreBy(x, sum, 1<<bit) {
			return true
		}
	}
	for change := 1; change < 256; change++ {
		if restoreBy(x, sum, byte(change)) {
			return true
		}
	}
	return false
}

// restoreBy is restore for a byte that has changed in the given bits.
func restoreBy(x []byte, sum uint64, change byte) bool {
	for i := range x {
		x[i] ^= change
		if Of(x) == sum {
			return true
		}
		x[i] ^= change
	}
	return false
}

// Digest returns a checksum of seals, which depends on their order. Seals that differ in one place
// have different digests.
func Digest(seals []uint64) (h uint64) {
	const prime = 0x9e3779b185ebca87 // of XXH64
	for _, s := range seals {
		h = bits.RotateLeft64(h*prime, 31) ^ s
	}
	return h
}

// Make returns the seals of a vector with elements of the given size in bytes.
func Make(x []byte, size int) (list []uint64) {
	for n := Len * size; len(x) > 0; x = x[min(n, len(x)):] {
		list = append(list, Of(x[:min(n, len(x))]))
	}
	return list
}
