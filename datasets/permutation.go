package datasets

// The order of windows in an epoch: a keyed Feistel network computes each place of a pseudo-random
// permutation from its index alone. Nothing is stored or shuffled.

import "math/bits"

const rounds = 6

// permutation is a permutation of [0, n). The order is part of what a checkpoint promises and must
// never change.
type permutation struct {
	n    uint64
	half int // bits of one half of the network; 4^half >= n
	keys [rounds]uint64
}

// newPermutation returns the permutation of [0, n), n >= 1, of an epoch.
func newPermutation(n, seed, epoch uint64) permutation {
	p := permutation{n: n, half: max((bits.Len64(n-1)+1)/2, 1)}
	// Seed and epoch are mixed in sequence. With a sum, (seed, epoch+1) would repeat the order of
	// (seed+1, epoch).
	key := SplitMix64(SplitMix64(seed) ^ epoch)
	for i := range p.keys {
		key = SplitMix64(key)
		p.keys[i] = key
	}
	return p
}

// at returns the place of i, which is below n.
//
// The network permutes [0, 4^half), which has at most four times the elements needed.
// Applying it until the result is below n (cycle walking: Black and Rogaway, "Ciphers with
// Arbitrary Finite Domains", 2002) makes it a permutation of [0, n).
func (p *permutation) at(i uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	for {
		left, right := i>>p.half, i&mask
		for _, key := range p.keys {
			left, right = right, left^(SplitMix64(right^key)&mask)
		}
		if i = left<<p.half | right; i < p.n {
			return i
		}
	}
}

// SplitMix64 is the output function of that generator: Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014.
func SplitMix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
