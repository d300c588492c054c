//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"math"
	"math/bits"
	"testing"
	"unsafe"

	"spmoe/tensor/format"
)

// mapped returns a byte as GF2P8AFFINEQB maps it (Intel SDM, volume 2).
func mapped(matrix uint64, x uint8) (y uint8) {
	for i := range 8 {
		y |= uint8(bits.OnesCount8(uint8(matrix>>(8*(7-i)))&x)&1) << i
	}
	return y
}

// The maps distinguish normal codes from others. For a normal code, their result plus bias and
// scale is the value. For the others, the tables and a subtraction of the distance to the highest
// scale give it.
func TestDecodingMaps(t *testing.T) {
	for _, f := range []*format.Element{format.E4M3, format.E5M2} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			l := tables(f)
			for code, x := range f.Values() {
				c, size := uint8(code), math.Abs(float64(x))
				isNormal := size >= float64(leastNormal(f)) && !math.IsInf(size, 0)
				if got := mapped(l.otherBits, c) > l.mostOther; got != isNormal {
					t.Errorf("code %#02x, %v: taken for normal: %v", code, x, got)
				}
				if !isNormal {
					continue
				}
				for scale := int(l.minScale); scale <= int(l.maxScale); scale++ {
					want := uint16(math.Float32bits(float32(math.Ldexp(float64(x), scale-127))) >> 16)
					step := uint16(scale<<7) - uint16(l.bias)
					normal := (uint16(mapped(l.highBits, c))<<8 | uint16(mapped(l.lowBits, c))) + step
					table := uint16(l.high[c&0x7f]&(c|0x7f))<<8 | uint16(l.low[c&0x7f])
					if table -= uint16(l.top) - step; normal != want || table != want {
						t.Fatalf("code %#02x, scale %d: %#04x by maps, %#04x by tables, want %#04x", code, scale, normal, table, want)
					}
				}
			}
		})
	}
}

// Notes are exact as long as no scale is outside the range of its lookup and no code is bad. The
// position of the scale does not matter.
func TestNotesExact(t *testing.T) {
	memory := []uint8{1, 255} // a code that is not zero, and its scale
	o := operand{View: strided(unsafe.Pointer(&memory[0]), 1, 1, 1, 1), scales: strided(unsafe.Pointer(&memory[1]), 1, 1, 1, 1)}
	for _, l := range []*lookup{tables(format.E4M3), tables(format.E5M2), decodersAVX2[format.INT8]()} {
		o.lookup = l
		for scale := range 256 {
			for _, at := range []int{0, 7, 8, 63} {
				var d notes
				d.reset()
				if d.min[at], d.max[at] = min(127, uint8(scale)), max(127, uint8(scale)); d.exact(o) != (scale >= int(l.minScale) && scale <= int(l.maxScale)) {
					t.Errorf("scale %d at %d, range %d to %d: exact is %v", scale, at, l.minScale, l.maxScale, d.exact(o))
				}
				d.reset()
				if d.bad[at] = uint8(scale); d.exact(o) != (scale&1 == 0) {
					t.Errorf("bad %#x at %d: exact is %v", scale, at, d.exact(o))
				}
			}
		}
	}
}
