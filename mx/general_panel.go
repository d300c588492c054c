package mx

import (
	"math"
	"unsafe"

	"spmoe/mx/internal/nvfp4"
	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// A panel is some columns of a row of blocks, in FP32. Its kernels process whole vectors, so its
// rows are padded.
type panel struct {
	quantizeArgs
	grid quant.Grid

	height, width int // of a block
	most          int // columns of a panel: whole blocks
	stride        int // elements between rows
	run           int // columns that share a factor in factors: format.MXBlock or 1

	at          blockRow
	encodeScale float32 // of its group
	col         int     // first column in the matrix
	cols        int     // columns
	values      []float32

	columnMax []float32 // largest magnitude of each column, NaN above all numbers
	amax      []float32 // the same for each block, and before that for each run
	factors   []float32 // multipliers of the elements: one per run
	odd       bool      // a block has a NaN or an infinity
	codes     []uint8   // of one row
	draws     []uint16  // of one row
}

// panelBytes bounds the values of a panel, so that a first- or second-level cache holds them.
const panelBytes = 64 << 10

// padding is the number of columns that kernels process together.
const padding = quant.Group * format.MXBlock

// newPanel returns a panel for blocks of g.t in the given number of columns.
func (g quantizeArgs) newPanel(ex *tensor.Exec, cols int) panel {
	p := panel{quantizeArgs: g, grid: elementGrid(g.t.Format.Element)}
	p.height, p.width = g.t.BlockShape()
	p.at.group = -1
	p.run = 1
	if p.width%format.MXBlock == 0 {
		p.run = format.MXBlock
	}
	unit := ceilDiv(padding, p.width) * p.width
	p.most = min(max(panelBytes/(4*p.height)/unit, 1)*unit, ceilDiv(cols, unit)*unit)
	p.stride = ceilDiv(p.most, padding) * padding
	p.values = ex.New(tensor.FP32, p.height, p.stride).F32()
	p.columnMax = ex.New(tensor.FP32, p.stride).F32()
	p.amax = ex.New(tensor.FP32, max(ceilDiv(p.stride, p.width)+padding, p.stride/p.run)).F32()
	p.factors = ex.New(tensor.FP32, p.stride).F32()
	cleared(ex, p.factors)
	p.codes = ex.New(tensor.UINT8, p.stride).U8()
	if g.rounding == Stochastic {
		p.draws = words(ex.New(tensor.UINT8, 2*ceilDiv(p.stride, nvfp4.DrawUnit)*nvfp4.DrawUnit))
	}
	return p
}

// cleared zeroes scratch memory, unless there is none in a dry run.
func cleared[T any](ex *tensor.Exec, s []T) {
	if !ex.Dry() {
		clear(s)
	}
}

// elementGrid returns an element format for the AVX2 kernels.
func elementGrid(e *format.Element) quant.Grid {
	return quant.NewGrid(e.Mantissa(), e.MinExponent(), math.Float32bits(e.Max()), e.SignBit())
}

// quantizeRow quantizes columns [col, end) of a row of blocks.
func (p *panel) quantizeRow(at blockRow, col, end int) {
	for ; col < end; col += p.most {
		p.load(at, col, end)
		p.quantize()
	}
}

// load reads the panel that begins with a column of a row of blocks, up to column end at most.
func (p *panel) load(at blockRow, col, end int) {
	if at.group != p.at.group {
		p.encodeScale = p.t.encodeScale(at.group)
	}
	p.at, p.col, p.cols = at, col, min(p.most, end-col)
	for r := range p.rows() {
		loadRow(p.row(r), p.x, at.first+r, col)
		clear(p.padded(r)[p.cols:])
	}
}

// loadRow reads columns of a row of an FP32 or BF16 matrix, from col on. A row is too little work
// for tensor.Convert.
func loadRow(to []float32, x tensor.Matrix, row, col int) {
	data, stride, _ := x.Memory()
	at := unsafe.Add(data, x.DType().Size()*(row*stride+col))
	if x.DType() == tensor.BF16 {
		tensor.Widen(to, unsafe.Slice((*tensor.BFloat16)(at), len(to)))
	} else {
		copy(to, unsafe.Slice((*float32)(at), len(to)))
	}
}

func (p *panel) rows() int { return p.at.last - p.at.first }

func (p *panel) row(r int) []float32 { return p.values[r*p.stride:][:p.cols] }

// padded returns row r up to a whole number of vectors. The padding is 0.
func (p *panel) padded(r int) []float32 { return p.values[r*p.stride:][:p.stride] }

func (p *panel) blocks() int { return ceilDiv(p.cols, p.width) }

// quantize quantizes the panel.
func (p *panel) quantize() {
	if p.quantizeNVFP4() {
		return
	}
	p.findAmax()
	p.setScales()
	p.encode()
}

// findAmax sets amax to the largest magnitude of each block.
func (p *panel) findAmax() {
	p.findColumnMax()
	if p.width == 1 {
		p.amax = p.columnMax
		return
	}
	columns, per := p.columnMax[:p.cols], p.width
	if kernels >= quant.Lanes && p.run > 1 {
		runs := p.amax[:p.stride/p.run]
		quant.AmaxRows(runs, p.columnMax)
		columns, per = runs[:ceilDiv(p.cols, p.run)], p.width/p.run
	}
	for b := range p.blocks() {
		p.amax[b] = largest(columns[b*per : min((b+1)*per, len(columns))])
	}
}

// findColumnMax sets columnMax.
func (p *panel) findColumnMax() {
	if kernels >= quant.Lanes {
		quant.AmaxCols(p.columnMax, p.values[:p.rows()*p.stride], p.rows())
		return
	}
	clear(p.columnMax)
	for r := range p.rows() {
		for c, v := range p.row(r) {
			p.columnMax[c] = math.Float32frombits(max(math.Float32bits(p.columnMax[c]), magnitudeBits(v)))
		}
	}
}

// magnitudeBits returns the bits of the magnitude of v. They sort like magnitudes, and those of
// NaNs above all others.
func magnitudeBits(v float32) uint32 { return math.Float32bits(v) &^ (1 << 31) }

// largest returns the largest of some magnitudes.
func largest(magnitudes []float32) float32 {
	most := uint32(0)
	for _, m := range magnitudes {
		most = max(most, math.Float32bits(m))
	}
	return math.Float32frombits(most)
}

// setScales chooses the scales of the blocks and sets the factors of the columns.
func (p *panel) setScales() {
	encode, first := p.encodeScale, p.col/p.width
	p.odd = false
	if p.t.Format.Scale == ScaleNone {
		for i := range p.factors[:p.cols] {
			p.factors[i] = encode
		}
		p.odd = p.damaged(largest(p.amax[:p.cols]))
		return
	}
	for b, amax := range p.amax[:p.blocks()] {
		s, factor := p.scale(amax, encode)
		p.odd = p.odd || p.damaged(amax)
		p.t.setScale(p.at.block, first+b, s)
		factors := p.factors[b*p.width/p.run : min((b+1)*p.width, p.stride)/p.run]
		for i := range factors {
			factors[i] = factor
		}
	}
}

// damaged says whether a block whose largest magnitude is amax has NaN codes only. A tensor's scale
// is finite, so that an infinity saturates if blocks have none.
func (p *panel) damaged(amax float32) bool {
	if p.t.Format.Scale == ScaleNone {
		return amax != amax
	}
	return amax-amax != 0
}

// encode sets the codes of all rows.
func (p *panel) encode() {
	for r := range p.rows() {
		p.encodeRow(r)
		if p.odd {
			p.fillNonFinite()
		}
		p.t.setCodes(p.at.first+r, p.col, p.codes[:p.cols])
	}
}

// encodeRow sets codes to those of row r.
func (p *panel) encodeRow(r int) {
	switch {
	case p.rounding == Stochastic:
		row := p.scaledRow(r)
		p.t.Format.EncodeStochastic(p.codes, row, p.drawRow(r))
	case kernels >= quant.Lanes && p.run > 1:
		quant.EncodeRows(p.codes, p.padded(r), p.factors, &p.grid)
	case kernels >= quant.Lanes:
		quant.EncodeCols(p.codes, p.padded(r), p.factors, &p.grid)
	default:
		p.t.Format.EncodeScaled(p.codes, p.scaledRow(r), 1)
	}
}

// scaledRow multiplies row r by the factors.
func (p *panel) scaledRow(r int) []float32 {
	row := p.row(r)
	for c := range row {
		row[c] *= p.factors[c/p.run]
	}
	return row
}

// drawRow returns the random numbers of row r.
func (p *panel) drawRow(r int) []uint16 {
	p.quantizeArgs.draws.fill(p.draws, p.at.first+r, p.col)
	return p.draws
}

// fillNonFinite sets the codes of the damaged blocks in a row to NaN.
func (p *panel) fillNonFinite() {
	for b, amax := range p.amax[:p.blocks()] {
		if p.damaged(amax) {
			block := p.codes[b*p.width : min((b+1)*p.width, p.cols)]
			for i := range block {
				block[i] = p.t.Format.NaN()
			}
		}
	}
}
