package gemm

// Decoding for AVX2 and NEON, which have no masks for bytes. Assembly takes whole blocks along k,
// or whole groups of rows across it. Anything smaller is first copied to a padded buffer.

import (
	"unsafe"

	"spmoe/tensor/format"
)

// decodeGroup is the number of rows that are decoded at once across k.
const decodeGroup = 16

// padding holds codes and scales in buffers with room at the end.
type padding struct {
	codes  [chunkSteps * decodeGroup]uint8 // or [chunkRows * format.MXBlock]
	scales [chunkSteps / format.MXBlock * decodeGroup]uint8
}

// clear fills it with zeros and scales of 1.
func (p *padding) clear() {
	clear(p.codes[:])
	for i := range p.scales {
		p.scales[i] = 127
	}
}

// copyBytes copies n bytes of each row.
func copyBytes(dst, src unsafe.Pointer, rows, n, dstStride, srcStride int) {
	for i := range rows {
		copy(unsafe.Slice((*uint8)(unsafe.Add(dst, i*dstStride)), n), unsafe.Slice((*uint8)(unsafe.Add(src, i*srcStride)), n))
	}
}

// alongBlocks decodes rows along k by calls of blocks, which takes whole blocks only.
func alongBlocks(blocks func(*decoding)) func(*decoding) {
	return func(d *decoding) {
		rest := d.count % format.MXBlock
		if d.count -= rest; d.count > 0 {
			blocks(d)
		}
		if rest == 0 {
			return
		}
		p := &d.padding
		p.clear()
		copyBytes(unsafe.Pointer(&p.codes), unsafe.Add(d.codes, d.count), d.rows, rest, format.MXBlock, d.codeStride)
		copyBytes(unsafe.Pointer(&p.scales), unsafe.Add(d.scales, d.count/format.MXBlock), d.rows, 1, 1, d.scaleStride)
		d.codes, d.scales, d.dst = unsafe.Pointer(&p.codes), unsafe.Pointer(&p.scales), unsafe.Add(d.dst, 2*d.count)
		d.count, d.codeStride, d.scaleStride = format.MXBlock, format.MXBlock, 1
		blocks(d)
	}
}

// acrossGroups decodes rows across k by calls of group, which takes exactly decodeGroup rows. The
// last group starts early enough to be full.
func acrossGroups(group func(*decoding)) func(*decoding) {
	return func(d *decoding) {
		if p := &d.padding; d.count < decodeGroup {
			p.clear()
			blocks := (d.rows + format.MXBlock - 1) / format.MXBlock
			copyBytes(unsafe.Pointer(&p.codes), d.codes, d.rows, d.count, decodeGroup, d.codeStride)
			copyBytes(unsafe.Pointer(&p.scales), d.scales, blocks, d.count, decodeGroup, d.scaleStride)
			d.codes, d.scales = unsafe.Pointer(&p.codes), unsafe.Pointer(&p.scales)
			d.count, d.codeStride, d.scaleStride = decodeGroup, decodeGroup, decodeGroup
		}
		codes, scales, dst := d.codes, d.scales, d.dst
		for i := 0; i < d.count; i += decodeGroup {
			at := min(i, d.count-decodeGroup)
			d.codes, d.scales, d.dst = unsafe.Add(codes, at), unsafe.Add(scales, at), unsafe.Add(dst, 2*at)
			group(d)
		}
	}
}
