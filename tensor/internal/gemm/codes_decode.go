//go:build amd64 && !purego

package gemm

// Decoding block-scaled operands to BF16, chunk by chunk while they are packed, and finding out whether that was exact.

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"
)

// operand is a or bᵀ in memory: rows along k, of elements as they are or of 8-bit codes.
type operand struct {
	View
	scales View
	lookup *lookup // nil: elements
}

// lengthwise says whether neighbours in memory are neighbours along k, in codes and scales alike.
func (o operand) lengthwise() bool { return o.rowMajor() && (o.lookup == nil || o.scales.rowMajor()) }

// part is n rows from row i on; an element has elem bytes.
func (o operand) part(elem, i, n int) operand {
	if o.lookup != nil {
		elem = 1
		o.scales = o.scales.slice(1, i, 0, n, o.scales.Cols)
	}
	o.View = o.slice(elem, i, 0, n, o.Cols)
	return o
}

// along is n elements of every row from k on, a multiple of the block length.
func (o operand) along(elem, k, n int) operand {
	if o.lookup != nil {
		elem = 1
		o.scales = o.scales.slice(1, 0, k/blockLength, o.Rows, (n+blockLength-1)/blockLength)
	}
	o.View = o.slice(elem, 0, k, o.Rows, n)
	return o
}

// decoders is what decodes the codes of each format.
type decoders [INT8 + 1]func() *lookup

// both says whether a and b can be decoded on the way into panels.
func (d *decoders) both(a, b Scaled) (x, y operand, ok bool) {
	x, okX := d.operand(a)
	y, okY := d.operand(b)
	return x, y, okX && okY
}

// operand wants codes and their scales in the same order in memory.
func (d *decoders) operand(m Scaled) (o operand, ok bool) {
	along := m.Codes.rowMajor() && m.Scales.rowMajor()
	across := m.Codes.RowStride == 1 && m.Scales.RowStride == 1 // by the strides only, so that a single row is like many
	return operand{m.Codes, m.Scales, d[m.Format]()}, along || across
}

// decodable says whether the assembly can decode a and b on the way into panels or, with few rows of a, on that to the kernels.
//
// Few rows are added up as in a direct product wherever MXINT8 is involved, whatever the layouts. What has no direct kernel, namely
// one that cannot be read in place or, on AVX-512, a b of MXINT8, is therefore not decodable then.
func (d *decoders) decodable(a, b Scaled, few bool) (x, y operand, ok bool) {
	x, y, ok = d.both(a, b)
	if few && (a.Format == INT8 || b.Format == INT8) {
		ok = ok && x.direct(y) && (b.Format != INT8 || d == &decodersAVX2)
	}
	return x, y, ok
}

// many is decodable for many rows.
func (d *decoders) many(a, b Scaled) (x, y operand, ok bool) { return d.decodable(a, b, false) }

// scaled is the operand as it was.
func (o operand) scaled() Scaled { return Scaled{o.View, o.scales, o.lookup.format} }

// codeTables has the bytes of the BF16 number |x|·2^(top-127), by the low 7 bits of the code of x. High bytes have the sign bit
// set unless x is 0, low bytes bit 0 if x is not finite.
type codeTables struct{ high, low [128]uint8 }

// lookup is what the assembly decodes with.
type lookup struct {
	codeTables
	top  uint32 // twice, as 16-bit words, in the exponent's place: the highest scale that leaves every code in the range of BF16, less bias
	bias uint32 // likewise: the scale with which a code has the exponent that BF16 reads in its bits

	// For GF2P8AFFINEQB: the bytes of a BF16 with sign, exponent and mantissa of a normal code, and what is at most mostOther for codes that are
	// not normal, and more for those that are.
	lowBits, highBits, otherBits uint64
	mostOther                    uint8

	minScale, maxScale uint8 // between which every decoded element is exact and normal
	magnitude          uint8 // bits of a code that are all 0 for a zero
	format             Format

	decodeAlong, decodeAcross func(*decoding)
}

var decodersAVX512 = decoders{
	E4M3: newLookup(E4M3, decodeAlongAVX512, decodeAcrossAVX512),
	E5M2: newLookup(E5M2, decodeAlongAVX512, decodeAcrossAVX512),
	INT8: newLookup(INT8, decodeInt8AlongAVX512, decodeInt8AcrossAVX512),
}

var decodersAVX2 = decoders{
	E4M3: newLookup(E4M3, alongBlocks(decodeE4M3AlongAVX2), acrossGroups(decodeE4M3AcrossAVX2)),
	E5M2: newLookup(E5M2, alongBlocks(decodeE5M2AlongAVX2), acrossGroups(decodeE5M2AcrossAVX2)),
	INT8: newLookup(INT8, alongBlocks(decodeInt8AlongAVX2), acrossGroups(decodeInt8AcrossAVX2)),
}

// newLookup returns a function that makes a lookup when it is first wanted.
func newLookup(f Format, along, across func(*decoding)) func() *lookup {
	return sync.OnceValue(func() *lookup {
		l := &lookup{minScale: 7, maxScale: 253, magnitude: 0xff, format: INT8} // without tables
		if f != INT8 {
			l = tables(f)
		}
		l.decodeAlong, l.decodeAcross = along, across
		return l
	})
}

func tables(f Format) *lookup {
	values := f.values()
	largest := float32(0)
	for _, x := range values {
		if x > largest && !math.IsInf(float64(x), 0) {
			largest = x
		}
	}
	top := 127 - math.Ilogb(float64(largest)) + 127
	l := &lookup{minScale: uint8(1 - math.Ilogb(float64(values[1]))), maxScale: uint8(top), magnitude: 0x7f, format: f}
	l.normalBits(minifloats[f])
	l.top = words(top<<7) - l.bias
	for code, x := range values[1:128] {
		bits := math.Float32bits(float32(math.Ldexp(float64(x), top-127)))
		l.high[code+1], l.low[code+1] = uint8(bits>>24)|0x80, uint8(bits>>16)
		if bits>>23 == 255 {
			l.low[code+1] |= 1
		}
	}
	return l
}

// normalBits sets what decodes normal codes.
func (l *lookup) normalBits(f minifloat) {
	mantissa, special := f.mantissa, 128-f.special
	l.bias = words(f.bias() << 7)
	place := func(code uint8) int { return int(code&0x7f) << (7 - mantissa) }
	l.lowBits = bitMatrix(func(code uint8) uint8 { return uint8(place(code)) })
	l.highBits = bitMatrix(func(code uint8) uint8 { return code&0x80 | uint8(place(code)>>8) })
	// Mantissas stay below 2^mantissa, and special codes go to the numbers from there on. Every bit of the exponent but the highest goes one up, to make room.
	one := func(bit int) uint8 {
		if bit < mantissa {
			return 1 << bit
		}
		return 2 << bit
	}
	highest := uint8(1) << mantissa
	for bit := range 6 {
		if special>>bit&1 == 1 {
			highest ^= one(bit)
		}
	}
	l.otherBits = bitMatrix(func(code uint8) uint8 {
		switch bit := bits.TrailingZeros8(code); bit {
		case 7:
			return 0
		case 6:
			return highest
		default:
			return one(bit)
		}
	})
	l.mostOther = uint8(1<<mantissa + f.special - 1)
}

// words is twice x, as 16-bit words.
func words(x int) uint32 { return uint32(x)<<16 | uint32(x) }

// bitMatrix is what GF2P8AFFINEQB does f by, for an f that is linear over the bits of a code.
func bitMatrix(f func(code uint8) uint8) (m uint64) {
	for in := range 8 {
		image := f(1 << in)
		for out := range 8 {
			m |= uint64(image>>out&1) << (8*(7-out) + in)
		}
	}
	return m
}

const (
	chunkRows  = 64  // that are decoded at once
	chunkSteps = 256 // of k, for which they are decoded at once: 32 KB

	decodeSteps = 512 // of k, at most, in one call of decodeAlong
)

// noNotes has met nothing but scales of 1.
var noNotes = func() (n notes) {
	for i := range n.min {
		n.min[i], n.max[i] = 127, 127
	}
	return
}()

func (d *notes) reset() { *d = noNotes }

// chunk decodes n (at most chunkRows) rows of o from row i on, at steps (at most chunkSteps) of k from k on, a multiple of 32.
// The result has the layout of the codes and lives until the next call.
func (s *Scratch) chunk(o operand, i, k, n, steps int) View {
	dst := s.chunks.atLeast(2 * chunkRows * chunkSteps)
	if o.lengthwise() {
		s.decodeRows(dst, 2*chunkSteps, o.part(1, i, n).along(1, k, steps))
		return strided(dst, n, steps, chunkSteps, 1)
	}
	d := &s.calls.decoding
	d.dst, d.lookup = dst, o.lookup
	d.codes, d.scales = o.slice(1, i, k, n, steps).Ptr, o.scales.slice(1, i, k/blockLength, n, 1).Ptr
	d.dstStride, d.codeStride, d.scaleStride = 2*chunkRows, o.ColStride, o.scales.ColStride
	d.rows, d.count = steps, n
	d.scaleMask = 1<<n - 1
	d.tailMask = d.scaleMask
	o.lookup.decodeAcross(d)
	return strided(dst, n, steps, 1, chunkRows)
}

// decodeRows decodes o, rows of at most decodeSteps codes along k, to rows that are stride bytes apart. It is not inlined for the sake of
// preemption, as family.column.
//
//go:noinline
func (s *Scratch) decodeRows(dst unsafe.Pointer, stride int, o operand) {
	d := &s.calls.decoding
	d.along(o)
	d.dst, d.dstStride = dst, stride
	o.lookup.decodeAlong(d)
}

// along sets what is decoded: rows of at most decodeSteps codes along k.
func (d *decoding) along(o operand) {
	d.codes, d.scales, d.lookup = o.Ptr, o.scales.Ptr, o.lookup
	d.codeStride, d.scaleStride = o.RowStride, o.scales.RowStride
	d.rows, d.count = o.Rows, o.Cols
	d.scaleMask, d.tailMask = 1<<o.scales.Cols-1, 1<<(o.Cols%64)-1
}

// below says whether no scale was above most.
func (d *notes) below(most uint8) bool { return slices.Max(d.max[:]) <= most }

// exact says whether all that was decoded of o since the reset is what it should be. Outside the lookup's range, only blocks of
// zeros are.
func (d *notes) exact(o operand) bool {
	var bad, outside uint64
	for i := 0; i < len(d.bad); i += 8 {
		bad |= binary.LittleEndian.Uint64(d.bad[i:])
		outside |= bytesBelow(binary.LittleEndian.Uint64(d.min[i:]), o.lookup.minScale) | bytesBelow(^binary.LittleEndian.Uint64(d.max[i:]), ^o.lookup.maxScale)
	}
	return bad&eachByte == 0 && (outside == 0 || d.below(254) && o.zeroOutside())
}

const eachByte = 0x0101010101010101 // 1

// bytesBelow is not 0 if one of the eight bytes of x is less than n, which is at most 128 (Anderson, Bit Twiddling Hacks: hasless).
func bytesBelow(x uint64, n uint8) uint64 {
	return (x - eachByte*uint64(n)) & ^x & (eachByte << 7)
}

// zeroOutside says whether all codes are 0 whose scales are outside the lookup's range.
func (o operand) zeroOutside() bool {
	for i := range o.scales.Rows {
		for j := range o.scales.Cols {
			if s := *at[uint8](o.scales, i, j); s >= o.lookup.minScale && s <= o.lookup.maxScale {
				continue
			}
			for k := j * blockLength; k < min((j+1)*blockLength, o.Cols); k++ {
				if *at[uint8](o.View, i, k)&o.lookup.magnitude != 0 {
					return false
				}
			}
		}
	}
	return true
}

// fits says whether all codes and scales of a row are in the lookup's range, zeros and scales of zeros aside.
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

// runs calls f for runs of n rows from row i on that all fit, or do not.
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
