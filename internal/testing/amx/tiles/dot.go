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
	var wide [maxRows][maxRowBytes / 2]float64
	for k := range b.rows {
		wide[k] = widened(&b.data[k])
	}
	for m := range sum.rows {
		var chains [maxRowBytes / 2]float64
		row := widened(&a.data[m])
		for k := range b.rows {
			multiplyAdd(chains[:b.rowBytes/2], row[2*k], row[2*k+1], &wide[k])
		}
		for n := range sum.rowBytes / 4 {
			word := sum.data[m][4*n:]
			old := float64(flushed(math.Float32frombits(binary.LittleEndian.Uint32(word))))
			both := add(old, add(chains[2*n], chains[2*n+1]))
			binary.LittleEndian.PutUint32(word, math.Float32bits(float32(both)))
		}
	}
}

// multiplyAdd adds first·row to the even elements of sums, and second·row to the odd ones. Each
// multiply-add rounds once.
func multiplyAdd(sums []float64, first, second float64, row *[maxRowBytes / 2]float64) {
	factors := [2]float64{first, second}
	for n, old := range sums {
		product := factors[n&1] * row[n&(len(row)-1)]
		s := old + product
		if hard(math.Float64bits(s)) {
			s = toOdd(old, product, s)
		}
		sums[n] = float64(float32(s))
	}
}

// add returns the sum of two FP32 numbers, rounded to FP32.
func add(x, y float64) float64 {
	sum := []float64{x}
	multiplyAdd(sum, 1, 0, &[maxRowBytes / 2]float64{y})
	return sum[0]
}

// widened returns the BF16 numbers of a row. Their products are exact in FP64.
func widened(row *[maxRowBytes]byte) (wide [maxRowBytes / 2]float64) {
	for i := range wide {
		wide[i] = float64(flushed(math.Float32frombits(uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16)))
	}
	return wide
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

// hard reports whether the bits of an FP64 sum look like a tie between two FP32 numbers, or like an
// FP32 number that is nearly subnormal. A conversion to FP32 might then round a second time.
func hard(bits uint64) bool {
	const below, tie = 1<<29 - 1, 1 << 28 // the bits that FP32 lacks
	const small = (1023 - 125) << 53      // twice the smallest, without a sign
	return bits&below == tie || bits<<1 < small
}

// toOdd returns what converts to FP32 as x + y does without a rounding before. s is x + y, rounded
// to FP64. If that was not exact, the result is the neighbor of x + y whose last bit is 1. If FP32
// would hold a subnormal number, the result is zero.
func toOdd(x, y, s float64) float64 {
	part := s - x
	rest := x - (s - part) + (y - part) // the rounding error of s
	if rest != 0 && math.Float64bits(s)&1 == 0 {
		s = math.Nextafter(s, math.Copysign(math.Inf(1), rest))
	}
	// A number is subnormal if it is so when rounded to 24 bits at any exponent.
	if math.Abs(s) < smallest-0x1p-151 {
		return math.Copysign(0, s)
	}
	return s
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
