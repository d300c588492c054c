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
	left, right := widened(a), widened(b)
	for m := range sum.rows {
		var chains [maxRowBytes / 2]float32
		for k := range b.rows {
			multiplyAdd(chains[:b.rowBytes/2], left[m][2*k:2*k+2], right[k][:b.rowBytes/2])
		}
		for n := range sum.rowBytes / 4 {
			word := sum.data[m][4*n:]
			old := flushed(math.Float32frombits(binary.LittleEndian.Uint32(word)))
			both := roundedSum(chains[2*n], float64(chains[2*n+1]))
			binary.LittleEndian.PutUint32(word, math.Float32bits(roundedSum(old, float64(both))))
		}
	}
}

// multiplyAdd adds a pair times each pair of row.
func multiplyAdd(sums []float32, pair, row []float64) {
	first, second := pair[0], pair[1]
	for n := 0; n < len(sums) && n+1 < len(row); n += 2 {
		sums[n] = roundedSum(sums[n], first*row[n])
		sums[n+1] = roundedSum(sums[n+1], second*row[n+1])
	}
}

// widened returns the BF16 numbers of a tile. Their products are exact in FP64.
func widened(t *tile) (wide [maxRows][maxRowBytes / 2]float64) {
	for i := range t.rows {
		for j := range t.rowBytes / 2 {
			bits := uint32(binary.LittleEndian.Uint16(t.data[i][2*j:]))
			wide[i][j] = float64(flushed(math.Float32frombits(bits << 16)))
		}
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

// roundedSum returns x + y rounded to FP32, and flushed. y is an FP32 number or a product of two
// BF16 numbers. The sum in FP64 does not round before: if it is not exact, it is next to one of x
// and y, which FP32 holds except for its exponent, and so not next to a tie.
//
// A result is subnormal if it is so when rounded to 24 bits at any exponent.
func roundedSum(x float32, y float64) float32 {
	const tooSmall = smallest - 0x1p-151
	s := float64(x) + y
	if s > -tooSmall && s < tooSmall {
		return float32(math.Copysign(0, s))
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
