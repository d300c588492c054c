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
	columns := b.rowBytes / 2
	for m := range sum.rows {
		var chains [maxRowBytes / 2]float64
		row := widened(&a.data[m])
		for k := range b.rows {
			first, second := row[2*k], row[2*k+1]
			for n := 0; n < columns; n += 2 {
				chains[n] = fusedAdd(chains[n], first*wide[k][n])
				chains[n+1] = fusedAdd(chains[n+1], second*wide[k][n+1])
			}
		}
		for n := range columns / 2 {
			word := sum.data[m][4*n:]
			old := float64(flushed(math.Float32frombits(binary.LittleEndian.Uint32(word))))
			both := fusedAdd(old, fusedAdd(chains[2*n], chains[2*n+1]))
			binary.LittleEndian.PutUint32(word, math.Float32bits(float32(both)))
		}
	}
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

// fusedAdd returns x + y rounded once, to FP32. Both are exact in FP64; x is an FP32 number, y may
// be a product of two.
func fusedAdd(x, y float64) float64 {
	s := x + y
	const below, tie = 1<<29 - 1, 1 << 28 // the bits that FP32 lacks
	if math.Float64bits(s)&below == tie || s > -2*smallest && s < 2*smallest {
		return roundedOnce(x, y, s)
	}
	return float64(float32(s))
}

// roundedOnce returns x + y as FP32 if their FP64 sum s looks like a tie, or is nearly subnormal.
// It first rounds to odd in FP64. This keeps what a second rounding needs.
func roundedOnce(x, y, s float64) float64 {
	part := s - x
	rest := x - (s - part) + (y - part) // the rounding error of s
	if rest != 0 && math.Float64bits(s)&1 == 0 {
		away := math.Inf(1)
		if rest < 0 {
			away = math.Inf(-1)
		}
		s = math.Nextafter(s, away)
	}
	// A result is subnormal if it is so when rounded to 24 bits at any exponent.
	if magnitude := math.Abs(s); magnitude < smallest-0x1p-151 {
		return math.Copysign(0, s)
	}
	return float64(float32(s))
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
