package mx

// Quantization by the AVX-512 kernels, one tile at a time. They take whole tiles of BF16. A tile
// that the edge of the matrix cuts is copied and padded with zeros. Its output goes through a
// buffer.

import (
	"unsafe"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// quantizeTiles quantizes a region in tiles.
func (q *quantizer) quantizeTiles(ex *tensor.Exec, at region) {
	s := (*scratch)(pointerTo(ex.New(tensor.UINT8, int(unsafe.Sizeof(scratch{}))).U8()))
	if ex.Dry() {
		return
	}
	s.rule = q.tileRule()
	t := tileQuantizer{quantizer: *q, scratch: s, ex: ex, at: at, tile: quant.Tile{Work: &s.work, Rule: &s.rule, Rows: at.rows}}
	t.setPointers()
	for col := 0; col < at.cols; col += quant.Cols {
		t.setInput(col)
		switch {
		case quant.Scan(t.tile.X, t.tile.Stride, t.tile.Rule, t.tile.Work):
			t.quantizeOdd(col)
		case at.cols-col < quant.Cols:
			t.encodeEdge(col)
		default:
			t.encode(col)
		}
	}
}

// tilesSupport says whether the kernels support an element format and the type of their input.
func tilesSupport(e *format.Element, dtype tensor.DType) bool {
	return dtype == tensor.BF16 && (e == format.E4M3 || e == format.E5M2)
}

func (q *quantizer) tileRule() quant.Rule {
	e := q.element
	return quant.Minifloat(e.Mantissa(), q.rule.emax, e.Largest(), q.rule.roundUp)
}

// minStreamedBytes is about half a third-level cache. The codes of an input of this size would
// leave the cache before they are read. Non-temporal stores also save reading the lines that are
// about to be overwritten.
const minStreamedBytes = 8 << 20

// useStreaming says whether to write the codes of an input of the given size with non-temporal
// stores. Such stores need whole cache lines.
func (q *quantizer) useStreaming(bytes, cols int) bool {
	const line = 64
	if kernels != quant.Tiles || bytes < minStreamedBytes || cols%line != 0 {
		return false
	}
	for _, t := range []*Tensor{&q.rows, &q.cols} {
		if t.requested() && uintptr(pointerTo(t.Codes.U8()))%line != 0 {
			return false
		}
	}
	return true
}

// scratch is the kernels' memory in the arena. The arena aligns it.
type scratch struct {
	work   quant.Work
	rule   quant.Rule
	padded [quant.Rows * quant.Cols]tensor.BFloat16
	edge   struct {
		rowCodes, colCodes [quant.Rows * quant.Cols]uint8
		rowScales          [quant.Rows * quant.Cols / format.MXBlock]uint8
		colScales          [quant.Cols]uint8
	}
}

// A tileQuantizer quantizes the tiles of one region. In its methods, col is the first column of a
// tile relative to the region.
type tileQuantizer struct {
	quantizer
	*scratch
	ex         *tensor.Exec
	at         region
	in         unsafe.Pointer // first element of the region
	stride     int            // bytes between its rows
	rows, cols output
	tile       quant.Tile
}

// An output points to the codes and scales of one direction from the region on. Both are nil if
// that direction is not requested.
type output struct{ codes, scales unsafe.Pointer }

// prefetchCols is the prefetch distance for input tiles in columns. It covers several times the
// memory latency.
const prefetchCols = 8 * quant.Cols

// size is the bytes of an element of the input.
const size = 2

// setPointers finds the input and output of the region.
func (t *tileQuantizer) setPointers() {
	data, stride, _ := t.x.Memory()
	t.stride = stride * size
	t.in = unsafe.Add(data, t.at.row*t.stride+t.at.col*size)
	if q := &t.quantizer.rows; q.requested() {
		t.rows = output{pointerTo(q.codesAt(t.at)), pointerTo(q.scalesAt(t.at))}
		t.tile.RowStride, t.tile.RowScaleStep = q.Cols(), q.Scales.Dim(1)
	}
	if q := &t.quantizer.cols; q.requested() {
		t.cols = output{pointerTo(q.codesAt(t.at)), pointerTo(q.scalesAt(t.at))}
		t.tile.ColStride = q.Cols()
	}
}

// setInput sets the input of a tile. It is the matrix itself for a whole tile of BF16 and a copy
// otherwise.
func (t *tileQuantizer) setInput(col int) {
	in, stride := unsafe.Add(t.in, col*size), t.stride
	ahead := unsafe.Add(in, t.prefetchOffset(col))
	if cols := min(quant.Cols, t.at.cols-col); t.at.rows < quant.Rows || cols < quant.Cols {
		padded := unsafe.Slice((*uint8)(unsafe.Pointer(&t.padded)), quant.Rows*quant.Cols*size)
		clear(padded)
		copyRows(padded, quant.Cols*size, unsafe.Slice((*uint8)(in), (t.at.rows-1)*stride+cols*size), stride, t.at.rows, cols*size)
		in, stride, ahead = pointerTo(padded), quant.Cols*size, pointerTo(padded)
	}
	t.tile.X, t.tile.Stride, t.tile.Ahead = in, stride, ahead
}

// prefetchOffset returns the offset in bytes from a tile to the one prefetchCols later, in this
// panel or one below. It is 0 if the matrix has no such whole tile.
func (t *tileQuantizer) prefetchOffset(col int) int {
	now := t.at.col + col
	panels, later := (now+prefetchCols)/t.x.Cols, (now+prefetchCols)%t.x.Cols
	if t.at.rows < quant.Rows || later+quant.Cols > t.x.Cols || t.at.row+(panels+1)*quant.Rows > t.x.Rows {
		return 0
	}
	return panels*quant.Rows*t.stride + (later-now)*size
}

// quantizeOdd quantizes a tile that the kernels reject.
func (t *tileQuantizer) quantizeOdd(col int) {
	at := t.at
	at.col, at.cols = at.col+col, min(quant.Cols, at.cols-col)
	t.quantizeAny(t.ex, at)
}

// encode writes a scanned tile.
func (t *tileQuantizer) encode(col int) {
	if t.rows.codes != nil {
		t.tile.RowCodes, t.tile.RowScales = unsafe.Add(t.rows.codes, col), unsafe.Add(t.rows.scales, col/format.MXBlock)
	}
	if t.cols.codes != nil {
		t.tile.ColCodes, t.tile.ColScales = unsafe.Add(t.cols.codes, col), unsafe.Add(t.cols.scales, col)
	}
	quant.Encode(&t.tile, t.rows.codes != nil, t.cols.codes != nil, t.stream)
}

// encodeEdge writes the last tile of the region if it is narrower than the kernels' tiles.
func (t *tileQuantizer) encodeEdge(col int) {
	const perRow = quant.Cols / format.MXBlock
	e := &t.edge
	t.tile.RowCodes, t.tile.RowStride = pointerTo(e.rowCodes[:]), quant.Cols
	t.tile.RowScales, t.tile.RowScaleStep = pointerTo(e.rowScales[:]), perRow
	t.tile.ColCodes, t.tile.ColStride = pointerTo(e.colCodes[:]), quant.Cols
	t.tile.ColScales = pointerTo(e.colScales[:])
	quant.Encode(&t.tile, t.rows.codes != nil, t.cols.codes != nil, false)
	at := t.at
	at.col, at.cols = at.col+col, at.cols-col
	if q := &t.quantizer.rows; q.requested() {
		copyRows(q.codesAt(at), q.Cols(), e.rowCodes[:], quant.Cols, at.rows, at.cols)
		copyRows(q.scalesAt(at), q.Scales.Dim(1), e.rowScales[:], perRow, at.rows, ceilDiv(at.cols, format.MXBlock))
	}
	if q := &t.quantizer.cols; q.requested() {
		copyRows(q.codesAt(at), q.Cols(), e.colCodes[:], quant.Cols, at.rows, at.cols)
		copy(q.scalesAt(at)[:at.cols], e.colScales[:])
	}
}

// copyRows copies rows of cols bytes.
func copyRows(dst []uint8, dstStride int, src []uint8, srcStride, rows, cols int) {
	for r := range rows {
		copy(dst[r*dstStride:][:cols], src[r*srcStride:])
	}
}

func pointerTo(b []uint8) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
