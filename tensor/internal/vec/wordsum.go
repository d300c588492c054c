package vec

// Checksums that kernels take of the memory that they read and write anyway. The checksum of a
// slice is the sum of its words modulo 2^32: of the bits of float32 elements, or of bfloat16
// elements. So a change of one word always changes it, and the checksums of two slices add up to
// that of both. Every tier has the same sums, because integers may be added in any order.

import "math"

// Lanes is a checksum in parts that add up to it.
type Lanes [16]uint32

// Sum returns the checksum.
func (l *Lanes) Sum() (sum uint32) {
	for _, part := range l {
		sum += part
	}
	return sum
}

func (l *Lanes) add(x float32) { l[0] += math.Float32bits(x) }

func (l *Lanes) addBF16(x uint16) { l[0] += uint32(x) }

// AdamWSums are checksums of what AdamW reads and writes. A call adds to them.
type AdamWSums struct {
	ReadMaster, ReadExpAvg, ReadExpAvgSq, ReadGrad Lanes
	WroteMaster, WroteExpAvg, WroteExpAvgSq        Lanes
	WroteWork                                      Lanes // of the new master weights in bfloat16
}

// Words adds the checksum of x to sums.
func Words(x []float32, sums *Lanes) { wordsRows(x, sums) }

// WordsBF16 is Words on bfloat16.
func WordsBF16(x []uint16, sums *Lanes) { wordsRows16(x, sums) }

func wordsGeneric(x []float32, sums *Lanes) {
	for _, f := range x {
		sums.add(f)
	}
}

func words16Generic(x []uint16, sums *Lanes) {
	for _, b := range x {
		sums.addBF16(b)
	}
}
