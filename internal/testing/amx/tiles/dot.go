package tiles

// Products of tiles.

import (
	"encoding/binary"
	"fmt"
	"math"
)

// dot computes Tile += A·B. Each 4 bytes of a row of A meet a row of B.
func (u *Unit) dot(in Instruction) error {
	if in.Tile == in.A || in.Tile == in.B || in.A == in.B {
		return fmt.Errorf("the three tiles of a product must differ")
	}
	var used [3]*tile
	for i, n := range []int{in.Tile, in.A, in.B} {
		var err error
		if used[i], err = u.tile(n); err != nil {
			return err
		}
	}
	sum, a, b := used[0], used[1], used[2]
	if sum.rows != a.rows || sum.rowBytes != b.rowBytes || a.rowBytes != 4*b.rows {
		return fmt.Errorf("a product of %v by %v into %v: the sum needs the rows of the first and the bytes per row of the second, which needs one row per 4 bytes of the first",
			a, b, sum)
	}
	if in.Op == DotBF16 {
		dotBF16(sum, a, b)
	} else {
		dotInt8(sum, a, b)
	}
	return nil
}

// String returns the size.
func (t *tile) String() string { return fmt.Sprintf("%d rows of %d bytes", t.rows, t.rowBytes) }

// dotBF16 adds products of BF16 pairs to FP32 sums. For each sum, one chain of fused multiply-adds
// takes the first elements of all pairs in order, another the second ones, each from zero. The sum
// of both is then added. Subnormals are read as zero and flushed.
func dotBF16(sum, a, b *tile) {
	var left, right [maxRows][maxRowBytes / 2]float32
	multiplyAdd := plainMultiplyAdd
	if moderate := widen(&left, a); !widen(&right, b) || !moderate {
		multiplyAdd = exactMultiplyAdd
	}
	for m := range sum.rows {
		var chains [maxRowBytes / 2]float32
		for k := range b.rows {
			multiplyAdd(&chains, left[m][2*k], left[m][2*k+1], &right[k])
		}
		for n := range sum.rowBytes / 4 {
			word := sum.data[m][4*n:]
			old := flushed(math.Float32frombits(binary.LittleEndian.Uint32(word)))
			both := roundedSum(chains[2*n], float64(chains[2*n+1]))
			binary.LittleEndian.PutUint32(word, math.Float32bits(roundedSum(old, float64(both))))
		}
	}
}

// widen reads BF16 numbers. moderate is true if each is zero or has a magnitude of 2^-40 to 2^40.
func widen(wide *[maxRows][maxRowBytes / 2]float32, t *tile) (moderate bool) {
	moderate = true
	for i := range t.rows {
		for j := range t.rowBytes / 2 {
			x := flushed(math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.data[i][2*j:])) << 16))
			wide[i][j] = x
			moderate = moderate && (x == 0 || x >= 0x1p-40 && x <= 0x1p40 || -x >= 0x1p-40 && -x <= 0x1p40)
		}
	}
	return moderate
}

// plainMultiplyAdd adds first·row to the even elements of sums, and second·row to the odd ones. All
// factors must be moderate. Then products are exact in FP32, and sums are neither subnormal nor too
// large. So FP32 rounds as a fused multiply-add does.
func plainMultiplyAdd(sums *[maxRowBytes / 2]float32, first, second float32, row *[maxRowBytes / 2]float32) {
	for n := 0; n < len(sums); n += 2 {
		sums[n] += first * row[n]
		sums[n+1] += second * row[n+1]
	}
}

// exactMultiplyAdd is plainMultiplyAdd for all numbers.
func exactMultiplyAdd(sums *[maxRowBytes / 2]float32, first, second float32, row *[maxRowBytes / 2]float32) {
	factors := [2]float64{float64(first), float64(second)}
	for n, sum := range sums {
		sums[n] = roundedSum(sum, factors[n%2]*float64(row[n]))
	}
}

// smallest is the smallest FP32 number that is not subnormal.
const smallest = 0x1p-126

// flushed replaces a subnormal number by a zero of its sign.
func flushed(x float32) float32 {
	if x > -smallest && x < smallest {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// roundedSum returns x + y, rounded once, to FP32, and flushed. y is an FP32 number or a product of
// two BF16 numbers, which FP64 holds exactly.
func roundedSum(x float32, y float64) float32 {
	s := float64(x) + y
	// Round to odd in FP64: to the neighbor whose last bit is 1. This keeps what a second rounding
	// needs.
	part := s - float64(x)
	rest := float64(x) - (s - part) + (y - part) // the rounding error of s
	if (rest < 0 || rest > 0) && math.Float64bits(s)&1 == 0 {
		s = math.Nextafter(s, math.Copysign(math.Inf(1), rest))
	}
	// A result is subnormal if it is so when rounded to 24 bits at any exponent.
	if math.Abs(s) < smallest-0x1p-151 {
		s = math.Copysign(0, s)
	}
	return float32(s)
}

// dotInt8 adds the products of 4 pairs of signed bytes to each 32-bit sum, which wraps around.
func dotInt8(sum, a, b *tile) {
	for m := range sum.rows {
		for k := range b.rows {
			left := a.data[m][4*k : 4*k+4]
			for n := range b.rowBytes / 4 {
				right := b.data[k][4*n : 4*n+4]
				word := sum.data[m][4*n:]
				total := int32(binary.LittleEndian.Uint32(word))
				for i := range left {
					total += int32(int8(left[i])) * int32(int8(right[i]))
				}
				binary.LittleEndian.PutUint32(word, uint32(total))
			}
		}
	}
}
