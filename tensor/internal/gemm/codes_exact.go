package gemm

// Detection of inexact decoding. The rows and columns concerned are multiplied by a fallback.

import (
	"encoding/binary"
	"slices"

	"spmoe/tensor/format"
)

// below reports whether every scale was at most most.
func (d *notes) below(most uint8) bool { return slices.Max(d.max[:]) <= most }

// exact reports whether everything decoded from o since the reset is exact. Blocks of zeros are
// exact even where their scale is outside the lookup's range.
func (d *notes) exact(o operand) bool {
	var bad, outside uint64
	for i := 0; i < len(d.bad); i += 8 {
		bad |= binary.LittleEndian.Uint64(d.bad[i:])
		outside |= bytesBelow(binary.LittleEndian.Uint64(d.min[i:]), o.lookup.minScale) | bytesBelow(^binary.LittleEndian.Uint64(d.max[i:]), ^o.lookup.maxScale)
	}
	return bad&eachByte == 0 && (outside == 0 || d.below(254) && o.zeroOutside())
}

const eachByte = 0x0101010101010101 // 1 in each byte

// bytesBelow is nonzero if one of the eight bytes of x is less than n. n is at most 128. Source:
// hasless in Anderson's Bit Twiddling Hacks.
func bytesBelow(x uint64, n uint8) uint64 {
	return (x - eachByte*uint64(n)) & ^x & (eachByte << 7)
}

// zeroOutside reports whether all codes are 0 in blocks whose scale is outside the lookup's range.
func (o operand) zeroOutside() bool {
	for i := range o.scales.Rows {
		for j := range o.scales.Cols {
			if s := *at[uint8](o.scales, i, j); s >= o.lookup.minScale && s <= o.lookup.maxScale {
				continue
			}
			for k := j * format.MXBlock; k < min((j+1)*format.MXBlock, o.Cols); k++ {
				if *at[uint8](o.View, i, k)&0x7f != 0 {
					return false
				}
			}
		}
	}
	return true
}

// fits reports whether all codes and scales of a row are in the lookup's range. Zeros and scales of
// zeros are exempt.
func (o operand) fits() bool {
	for k := range o.Cols {
		if o.lookup.low[*at[uint8](o.View, 0, k)&0x7f]&1 == 1 {
			return false
		}
	}
	for j := range o.scales.Cols {
		if *at[uint8](o.scales, 0, j) == 255 {
			return false
		}
	}
	return o.zeroOutside()
}

// runs splits the rows into runs of equal fit and calls f for each: n rows from row i on.
func (o operand) runs(f func(i, n int, fits bool)) {
	for i := 0; i < o.Rows; {
		fits, n := o.part(1, i, 1).fits(), 1
		for i+n < o.Rows && o.part(1, i+n, 1).fits() == fits {
			n++
		}
		f(i, n, fits)
		i += n
	}
}

// exceptions returns a fallback that passes only the rows and columns that need it to slow. slow
// sums in another order, and the bits of an element must not depend on its neighbours.
func (f *microkernel) exceptions(s *Scratch, operands func(a, b Scaled) (x, y operand, ok bool), slow fallback) fallback {
	return func(sum, out View, a, b Scaled, add mode) {
		x, y, _ := operands(a, b)
		y.runs(func(j, n int, fitsY bool) {
			x.runs(func(i, m int, fitsX bool) {
				sum, out := sum, out
				if out.Ptr != nil {
					out = out.slice(2, i, j, m, n)
				} else {
					sum = sum.slice(4, i, j, m, n)
				}
				if fitsX && fitsY {
					f.multiply(s, sum, out, x.part(1, i, m), y.part(1, j, n), add, nil)
				} else {
					slow(sum, out, a.rows(i, m), b.rows(j, n), add)
				}
			})
		})
	}
}
