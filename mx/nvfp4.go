package mx

// NVFP4 by its kernels.

import (
	"unsafe"

	"spmoe/mx/internal/nvfp4"
	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// isNVFP4 says whether the kernels for NVFP4 can encode and decode f. Whole tensors may have a
// scale or not.
func (f Format) isNVFP4() bool {
	return kernels == quant.Tiles && f.Element == format.E2M1 && f.Packed && f.Scale == ScaleE4M3 && f.Block[1] == nvfp4.Block && (f.Block[0] == 1 || f.Block[0] == nvfp4.Block)
}

// quantizeNVFP4 quantizes the panel if it can: all elements are finite.
func (p *panel) quantizeNVFP4() bool {
	if !p.t.Format.isNVFP4() {
		return false
	}
	p.findAmaxNVFP4()
	encode := p.encodeScale
	blocks := ceilDiv(p.blocks(), nvfp4.Block) * nvfp4.Block
	scales, factors := p.codes[:blocks], p.factors[:blocks]
	if nvfp4.Scales(scales, factors, p.amax[:blocks], encode*(1/p.largest), 1/encode) {
		return false
	}
	copy(rowFrom(p.t.Scales, p.at.block, p.col/p.width)[:p.blocks()], scales)
	n := ceilDiv(p.cols, nvfp4.Block) * nvfp4.Block
	for r := range p.rows() {
		p.encodeNVFP4(p.codes, p.padded(r)[:n], factors, r)
		copy(rowFrom(p.t.Codes, p.at.first+r, p.col/2)[:p.cols/2], p.codes)
	}
	return true
}

// findAmaxNVFP4 is findAmax for NVFP4.
func (p *panel) findAmaxNVFP4() {
	switch {
	case p.width == 1:
		p.findAmax()
	case p.height == 1:
		nvfp4.AmaxBlocks(p.amax[:p.stride/nvfp4.Block], p.values)
	default:
		p.findColumnMax()
		nvfp4.AmaxBlocks(p.amax[:p.stride/nvfp4.Block], p.columnMax)
	}
}

// encodeNVFP4 sets codes to those of x, row r of the panel.
func (p *panel) encodeNVFP4(codes []uint8, x, factors []float32, r int) {
	switch perColumn := p.width == 1; {
	case p.rounding == Nearest && perColumn:
		nvfp4.EncodeCols(codes, x, factors)
	case p.rounding == Nearest:
		nvfp4.EncodeRows(codes, x, factors)
	case perColumn:
		nvfp4.EncodeStochasticCols(codes, x, factors, p.drawRow(r))
	default:
		nvfp4.EncodeStochasticRows(codes, x, factors, p.drawRow(r))
	}
}

// decodeExact sets out to the BF16 numbers of row i without their group scale.
func (d *rowDecoder) decodeExact(out []uint16, i int) {
	codes := rowFrom(d.t.Codes, i, 0)
	if d.cols%nvfp4.Block == 0 {
		d.decodeNVFP4(out, codes)
		return
	}
	copy(d.codes, codes)
	padded := words(d.padded)[:ceilDiv(d.cols, nvfp4.Block)*nvfp4.Block]
	d.decodeNVFP4(padded, d.codes)
	copy(out, padded)
}

// decodeNVFP4 decodes whole blocks.
func (d *rowDecoder) decodeNVFP4(out []uint16, codes []uint8) {
	if d.run == nvfp4.Block {
		nvfp4.DecodeRows(out, codes, d.scales)
	} else {
		nvfp4.DecodeCols(out, codes, d.scales)
	}
}

// bf16Row returns row i of a BF16 matrix, as bits.
func bf16Row(m tensor.Matrix, i int) []uint16 {
	data, rowStride, _ := m.Memory()
	return unsafe.Slice((*uint16)(unsafe.Add(data, 2*i*rowStride)), m.Cols)
}

// words returns the memory of a tensor as words.
func words(t tensor.Tensor) []uint16 {
	b := t.Bytes()
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

// amaxBF16 returns the bits of the largest magnitude of a BF16 matrix, NaN above all numbers.
func amaxBF16(x tensor.Matrix) (most uint16) {
	var lanes [32]uint16
	for i := range x.Rows {
		row := bf16Row(x, i)
		whole := len(row) / len(lanes) * len(lanes)
		if whole > 0 {
			nvfp4.AmaxBF16(&lanes, row[:whole])
		}
		for _, w := range row[whole:] {
			most = max(most, w&0x7fff)
		}
	}
	for _, m := range lanes {
		most = max(most, m)
	}
	return most
}
