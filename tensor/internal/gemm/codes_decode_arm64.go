//go:build !purego

package gemm

// The decoders of arm64, in plain Go: one multiplication per code.

import (
	"math"
	"unsafe"

	"spmoe/tensor/format"
)

var decodersNEON = decoders{
	format.E4M3: newLookup(format.E4M3, decodeAlongPlain, decodeAcrossPlain),
	format.E5M2: newLookup(format.E5M2, decodeAlongPlain, decodeAcrossPlain),
	format.INT8: newLookup(format.INT8, decodeAlongPlain, decodeAcrossPlain),
}

// decodeAlongPlain decodes rows that are contiguous along k.
func decodeAlongPlain(d *decoding) {
	values := d.lookup.element.Values()
	for i := range d.rows {
		codes := unsafe.Slice((*uint8)(unsafe.Add(d.codes, i*d.codeStride)), d.count)
		dst := unsafe.Slice((*uint16)(unsafe.Add(d.dst, i*d.dstStride)), d.count)
		for k := 0; k < d.count; k += format.MXBlock {
			end := min(k+format.MXBlock, d.count)
			factor := d.factor(unsafe.Add(d.scales, i*d.scaleStride+k/format.MXBlock))
			d.decode(dst[k:end], codes[k:end], values, factor)
		}
	}
}

// decodeAcrossPlain decodes steps of k whose codes are adjacent.
func decodeAcrossPlain(d *decoding) {
	values := d.lookup.element.Values()
	for j := range d.count {
		var factor float32
		for k := range d.rows {
			if k%format.MXBlock == 0 {
				factor = d.factor(unsafe.Add(d.scales, k/format.MXBlock*d.scaleStride+j))
			}
			code := (*[1]uint8)(unsafe.Add(d.codes, k*d.codeStride+j))
			d.decode((*[1]uint16)(unsafe.Add(d.dst, k*d.dstStride+2*j))[:], code[:], values, factor)
		}
	}
}

// factor returns the value of a scale and notes it. Scales outside the range of a lookup may have
// another value, with which zeros stay zeros.
func (d *decoding) factor(at unsafe.Pointer) float32 {
	scale := *(*uint8)(at)
	d.min[0], d.max[0] = min(d.min[0], scale), max(d.max[0], scale)
	return math.Float32frombits(uint32(min(scale, 254)) << 23)
}

// decode decodes codes of one block, and notes codes that are not finite.
func (d *decoding) decode(dst []uint16, codes []uint8, values *[256]float32, factor float32) {
	for i, code := range codes {
		x := values[code]
		if x-x != 0 {
			d.bad[0] = 1
		}
		dst[i] = uint16(math.Float32bits(x*factor) >> 16)
	}
}
