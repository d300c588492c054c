package tensorcore

// Operands as the kernels read them.

import (
	"math"
	"unsafe"

	"spmoe/tensor/format"
)

// A Source is an operand of a product: a row for each row of a, or for each column of b.
//
// Each row has K elements in FP32 or BF16: numbers of a format with at most 11 significant bits,
// infinities and NaN. Least is the exponent of the format's smallest normal number. Strides are in
// elements, and one of RowStride and ColStride is 1.
type Source struct {
	Values               unsafe.Pointer
	BF16                 bool
	Rows, K              int
	RowStride, ColStride int
	Least                int
	Scales               BlockScales
}

// BlockScales are scales of an operand. Element k of a row belongs to run k/Run. Rows neighboring
// rows share a scale, and the operand's first row is row First. Strides are in scales.
//
// Scales of type E8M0 are powers of two. Units of 8-bit formats add their exponents to those of
// elements, and the operand's values include them. Units of 4-bit formats multiply groups of
// products by scales of type E8M0 or E4M3, which values do not include. Scales in FP32 multiply the
// sums of chains: see Scales.
type BlockScales struct {
	Type                 ScaleType
	Data                 unsafe.Pointer
	RowStride, RunStride int
	Run, Rows, First     int
}

// ScaleType is the type of the scales of an operand.
type ScaleType uint8

// The types of scales.
const (
	NoScales ScaleType = iota
	ScaleE8M0
	ScaleE4M3
	ScaleFP32
)

func (s *BlockScales) index(row, run int) int {
	return (s.First+row)/s.Rows*s.RowStride + run*s.RunStride
}

// From returns the scales of the elements from k on, which is the first of a run.
func (s BlockScales) From(k int) BlockScales {
	size := 1
	switch s.Type {
	case NoScales:
		return s
	case ScaleFP32:
		size = 4
	}
	s.Data = unsafe.Add(s.Data, size*(k/s.Run)*s.RunStride)
	return s
}

// scaleBias is the bias of E8M0.
const scaleBias = 127

// element returns a scale of 8 bits.
func (s *BlockScales) element(row, run int) Element {
	code := *(*uint8)(unsafe.Add(s.Data, s.index(row, run)))
	switch {
	case s.Type == ScaleE4M3:
		return ElementOf(format.E4M3.Values()[code], format.E4M3.MinExponent())
	case code == nanScale:
		return Element{Value: math.NaN()}
	}
	e := int(code) - scaleBias
	return Element{math.Ldexp(1, e), e}
}

// nanScale is the NaN of E8M0.
const nanScale = 255

// FP32 returns scale run of a row, which is in FP32.
func (s *BlockScales) FP32(row, run int) float32 {
	return *(*float32)(unsafe.Add(s.Data, 4*s.index(row, run)))
}

// least returns the exponent of the smallest normal number, times the scale of element k of a row.
func (s *Source) least(row, k int) int32 {
	if s.Scales.Type != ScaleE8M0 {
		return int32(s.Least)
	}
	code := *(*uint8)(unsafe.Add(s.Scales.Data, s.Scales.index(row, k/s.Scales.Run)))
	return int32(s.Least + int(code) - scaleBias)
}

// at returns the memory of element k of a row.
func (s *Source) at(row, k int) unsafe.Pointer {
	size := 4
	if s.BF16 {
		size = 2
	}
	return unsafe.Add(s.Values, size*(row*s.RowStride+k*s.ColStride))
}

// Exponents of zeros and of elements that are not finite have this added. A product with a factor
// of zero then does not take part in the alignment. One with a factor that is not finite is left to
// plain Go, also if the other factor is zero.
const (
	zeroOffset    = -6144
	specialOffset = 12288
)

// bias is added to the exponents of right panels. Those of products are then biased as in FP32.
const bias = 127

// twice returns an exponent in both halves of a word.
func twice(e int) uint32 { return uint32(uint16(e)) | uint32(e)<<16 }

// splitGeneric sets values to contiguous FP32 or BF16 numbers. It sets exponents to theirs plus b,
// each at least its least, in both halves of the word.
func splitGeneric(values []float32, exponents []uint32, leasts []int32, from unsafe.Pointer, isBF16 bool, b int) {
	for i := range values {
		var bits uint32
		if isBF16 {
			bits = uint32(*(*uint16)(unsafe.Add(from, 2*i))) << 16
		} else {
			bits = *(*uint32)(unsafe.Add(from, 4*i))
		}
		values[i] = math.Float32frombits(bits)
		exponents[i] = twice(exponentOf(bits&^(1<<31), int(leasts[i]), b))
	}
}

func exponentOf(magnitude uint32, least, b int) int {
	e := max(int(magnitude>>23)-bias+b, least)
	switch {
	case magnitude == 0:
		return e + zeroOffset
	case magnitude >= 0xff<<23:
		return e + specialOffset
	case magnitude < 1<<23: // subnormal in FP32
		return max(math.Ilogb(float64(math.Float32frombits(magnitude)))+b, least)
	}
	return e
}

// A leftRow is a chunk of a row of a. Words of exponents have them twice.
type leftRow struct {
	values    [chunk]float32
	exponents [chunk]uint32
}

func (r *leftRow) element(k int) Element {
	return Element{float64(r.values[k]), int(int16(r.exponents[k]))}
}

// clear makes elements [k, chunk) zero.
func (r *leftRow) clear(k int) {
	for ; k < chunk; k++ {
		r.values[k], r.exponents[k] = 0, twice(zeroOffset)
	}
}

// A rightPanel is a chunk of some columns of b: for each k, a row of values and one of exponents. A
// word has the exponents of columns j and j + columns/2.
type rightPanel struct {
	columns   int
	values    []float32
	exponents []uint32
}

func (p *rightPanel) element(j, k int) Element {
	half := p.columns / 2
	word := p.exponents[k*half+j%half]
	return Element{float64(p.values[k*p.columns+j]), int(int16(word>>(j/half*16))) - bias}
}

// A packer has the memory for packing an operand.
type packer struct {
	Source
	*kernels
	bias      int
	leasts    []int32   // of a run of elements
	values    []float32 // of a run of elements
	exponents []uint32  // likewise
	rows      []leftRow // the columns of a panel
}

// split splits n contiguous elements from element k of a row on.
func (p *packer) split(values []float32, exponents []uint32, row, k int) {
	p.kernels.split(values, exponents, p.leasts[:len(values)], p.at(row, k), p.BF16, p.bias)
}

// packRows packs elements [k0, k1) of rows [row, end). Rows of to that are left become zeros.
func (p *packer) packRows(to []leftRow, row, end, k0, k1 int) {
	n := min(end-row, len(to))
	if p.ColStride == 1 {
		for r := range n {
			p.packRow(&to[r], row+r, k0, k1)
		}
	} else {
		p.packTransposed(to[:n], row, k0, k1)
	}
	for r := range to {
		if r < n {
			to[r].clear(k1 - k0)
		} else {
			to[r].clear(0)
		}
	}
}

func (p *packer) packRow(to *leftRow, row, k0, k1 int) {
	run := chunk
	if p.Scales.Type == ScaleE8M0 {
		run = p.Scales.Run
	}
	for k := k0; k < k1; k += run {
		least := p.least(row, k) + int32(p.bias)
		for i := k; i < min(k+run, k1); i++ {
			p.leasts[i-k0] = least
		}
	}
	p.split(to.values[:k1-k0], to.exponents[:k1-k0], row, k0)
}

// packTransposed packs rows whose neighbors are neighbors in memory.
func (p *packer) packTransposed(to []leftRow, row, k0, k1 int) {
	n := len(to)
	for k := k0; k < k1; k++ {
		p.setLeasts(row, n, k, k0)
		values, exponents := p.values[:n], p.exponents[:n]
		p.split(values, exponents, row, k)
		for r, v := range values {
			to[r].values[k-k0], to[r].exponents[k-k0] = v, exponents[r]
		}
	}
}

// setLeasts sets leasts for element k of rows [row, row+n). k0 is the first one of the loop.
func (p *packer) setLeasts(row, n, k, k0 int) {
	if k > k0 && (p.Scales.Type != ScaleE8M0 || k%p.Scales.Run != 0) {
		return
	}
	for r := range n {
		p.leasts[r] = p.least(row+r, k) + int32(p.bias)
	}
}

// packColumns packs elements [k0, k1) of columns [col, end).
func (p *packer) packColumns(to *rightPanel, col, end, k0, k1 int) {
	if p.ColStride == 1 {
		rows := p.rows[:to.columns]
		p.packRows(rows, col, end, k0, k1)
		to.transpose(rows)
		return
	}
	half, n := to.columns/2, min(end-col, to.columns)
	exponents := p.exponents[:to.columns]
	for j := n; j < to.columns; j++ {
		exponents[j] = twice(zeroOffset)
	}
	for k := range len(to.values) / to.columns {
		values := to.values[k*to.columns : (k+1)*to.columns]
		clear(values[n:])
		if k < k1-k0 {
			p.setLeasts(col, n, k0+k, k0)
			p.split(values[:n], exponents[:n], col, k0+k)
		} else {
			clear(values)
			for j := range exponents {
				exponents[j] = twice(zeroOffset)
			}
		}
		for j := range half {
			to.exponents[k*half+j] = exponents[j]&0xffff | exponents[j+half]&^0xffff
		}
	}
}

// transpose packs columns that are packed as rows.
func (p *rightPanel) transpose(rows []leftRow) {
	half := p.columns / 2
	for j := range half {
		a, b := &rows[j], &rows[j+half]
		for k := range len(p.values) / p.columns {
			p.values[k*p.columns+j], p.values[k*p.columns+half+j] = a.values[k], b.values[k]
			p.exponents[k*half+j] = a.exponents[k]&0xffff | b.exponents[k]&^0xffff
		}
	}
}
