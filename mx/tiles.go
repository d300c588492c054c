package mx

// Quantization by the AVX-512 kernels, a tile at a time. They want whole tiles of BF16: where the
// matrix has others, a tile is copied to where zeros fill it up, and the output of a tile that the
// matrix cuts off goes through a buffer.

import (
	"unsafe"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// tiles quantizes the panel at that place.
func (q *quantizer) tiles(ex *tensor.Exec, at place) {
	s := (*scratch)(first(ex.New(tensor.UINT8, int(unsafe.Sizeof(scratch{}))).U8()))
	s.rule = q.tileRule()
	t := tiler{quantizer: *q, scratch: s, ex: ex, at: at, tile: quant.Tile{Work: &s.work, Rule: &s.rule, Rows: at.rows}}
	t.locate()
	for col := 0; col < at.cols; col += quant.Cols {
		t.source(col)
		switch {
		case quant.Scan(t.tile.X, t.tile.Stride, t.tile.Rule, t.tile.Work):
			t.odd(col)
		case at.cols-col < quant.Cols:
			t.encodeEdge(col)
		default:
			t.encode(col)
		}
	}
}

// tileable says whether there are kernels for an element. They see FP32 in 8 bits, which is too few
// for the 7 of INT8.
func tileable(e *format.Element, dtype tensor.DType) bool {
	return e == format.E4M3 || e == format.E5M2 || e == format.INT8 && dtype == tensor.BF16
}

func (q *quantizer) tileRule() quant.Rule {
	e := q.element
	if e.IsInteger() {
		return quant.Integer(q.rule.roundUp)
	}
	return quant.Minifloat(e.Mantissa(), q.rule.emax, e.Largest(), q.rule.roundUp)
}

// streamedBytes is about half a third-level cache. Codes of so much input would be gone from it
// when they are read, and writing past the caches saves reading the lines that are to be written.
const streamedBytes = 8 << 20

// streams says whether the codes of that many bytes of input are to be written past the caches,
// which takes whole lines.
func (q *quantizer) streams(bytes, cols int) bool {
	const line = 64
	if kernels != quant.Tiles || bytes < streamedBytes || cols%line != 0 {
		return false
	}
	for _, t := range []*Tensor{&q.rows, &q.cols} {
		if t.wanted() && uintptr(first(t.Codes.U8()))%line != 0 {
			return false
		}
	}
	return true
}

// scratch is what the kernels keep in the arena, which aligns it.
type scratch struct {
	work   quant.Work
	rule   quant.Rule
	padded [quant.Rows * quant.Cols]float32 // or as many BF16
	narrow [quant.Rows * quant.Cols]tensor.BFloat16
	edge   struct {
		rowCodes, colCodes [quant.Rows * quant.Cols]uint8
		rowScales          [quant.Rows * quant.Cols / format.MXBlock]uint8
		colScales          [quant.Cols]uint8
	}
}

// A tiler works off the tiles of one panel; col is where in the panel a tile begins.
type tiler struct {
	quantizer
	*scratch
	ex         *tensor.Exec
	at         place
	in         unsafe.Pointer // the panel's first element
	stride     int            // bytes from one of its rows to the next
	rows, cols output
	tile       quant.Tile
}

// An output is where the codes and scales of a direction go from the panel's place on; nil if it is
// not wanted.
type output struct{ codes, scales unsafe.Pointer }

// aheadCols is how many columns before its turn a tile of input is fetched: several times as long
// as memory takes to answer.
const aheadCols = 8 * quant.Cols

// locate finds the panel's input and output.
func (t *tiler) locate() {
	data, stride, _ := t.x.Memory()
	size := t.x.DType().Size()
	t.stride = stride * size
	t.in = unsafe.Add(data, t.at.row*t.stride+t.at.col*size)
	if q := &t.quantizer.rows; q.wanted() {
		t.rows = output{first(q.codesAt(t.at)), first(q.scalesAt(t.at))}
		t.tile.RowStride, t.tile.RowScaleStep = q.Cols(), q.Scales.Dim(1)
	}
	if q := &t.quantizer.cols; q.wanted() {
		t.cols = output{first(q.codesAt(t.at)), first(q.scalesAt(t.at))}
		t.tile.ColStride = q.Cols()
	}
}

// source sets the tile's input: the matrix itself where it has a whole tile of BF16, otherwise a
// copy.
func (t *tiler) source(col int) {
	size := t.x.DType().Size()
	in, stride := unsafe.Add(t.in, col*size), t.stride
	ahead := unsafe.Add(in, t.ahead(col))
	if cols := min(quant.Cols, t.at.cols-col); t.at.rows < quant.Rows || cols < quant.Cols {
		padded := unsafe.Slice((*uint8)(unsafe.Pointer(&t.padded)), quant.Rows*quant.Cols*size)
		clear(padded)
		copyRows(padded, quant.Cols*size, unsafe.Slice((*uint8)(in), (t.at.rows-1)*stride+cols*size), stride, t.at.rows, cols*size)
		in, stride, ahead = first(padded), quant.Cols*size, first(padded)
	}
	if t.x.DType() == tensor.FP32 {
		narrow := unsafe.Pointer(&t.narrow)
		quant.Narrow(narrow, in, stride, ahead)
		in, stride, ahead = narrow, 2*quant.Cols, narrow
	}
	t.tile.X, t.tile.Stride, t.tile.Ahead = in, stride, ahead
}

// ahead returns how many bytes behind a tile the one begins that is wanted aheadCols later, in this
// panel or in one below; 0 if the matrix has no such whole tile.
func (t *tiler) ahead(col int) int {
	now := t.at.col + col
	panels, later := (now+aheadCols)/t.x.Cols, (now+aheadCols)%t.x.Cols
	if t.at.rows < quant.Rows || later+quant.Cols > t.x.Cols || t.at.row+(panels+1)*quant.Rows > t.x.Rows {
		return 0
	}
	return panels*quant.Rows*t.stride + (later-now)*t.x.DType().Size()
}

// odd quantizes what the kernels refuse.
func (t *tiler) odd(col int) {
	at := t.at
	at.col, at.cols = at.col+col, min(quant.Cols, at.cols-col)
	t.values(t.ex, at)
}

// encode writes the tile that has been scanned.
func (t *tiler) encode(col int) {
	if t.rows.codes != nil {
		t.tile.RowCodes, t.tile.RowScales = unsafe.Add(t.rows.codes, col), unsafe.Add(t.rows.scales, col/format.MXBlock)
	}
	if t.cols.codes != nil {
		t.tile.ColCodes, t.tile.ColScales = unsafe.Add(t.cols.codes, col), unsafe.Add(t.cols.scales, col)
	}
	quant.Encode(&t.tile, t.rows.codes != nil, t.cols.codes != nil, t.stream)
}

// encodeEdge writes the panel's last tile, if it is narrower than the kernels write.
func (t *tiler) encodeEdge(col int) {
	const perRow = quant.Cols / format.MXBlock
	e := &t.edge
	t.tile.RowCodes, t.tile.RowStride = first(e.rowCodes[:]), quant.Cols
	t.tile.RowScales, t.tile.RowScaleStep = first(e.rowScales[:]), perRow
	t.tile.ColCodes, t.tile.ColStride = first(e.colCodes[:]), quant.Cols
	t.tile.ColScales = first(e.colScales[:])
	quant.Encode(&t.tile, t.rows.codes != nil, t.cols.codes != nil, false)
	at := t.at
	at.col, at.cols = at.col+col, at.cols-col
	if q := &t.quantizer.rows; q.wanted() {
		copyRows(q.codesAt(at), q.Cols(), e.rowCodes[:], quant.Cols, at.rows, at.cols)
		copyRows(q.scalesAt(at), q.Scales.Dim(1), e.rowScales[:], perRow, at.rows, ceilDiv(at.cols, format.MXBlock))
	}
	if q := &t.quantizer.cols; q.wanted() {
		copyRows(q.codesAt(at), q.Cols(), e.colCodes[:], quant.Cols, at.rows, at.cols)
		copy(q.scalesAt(at)[:at.cols], e.colScales[:])
	}
}

// copyRows copies a matrix of rows by cols.
func copyRows(dst []uint8, dstStride int, src []uint8, srcStride, rows, cols int) {
	for r := range rows {
		copy(dst[r*dstStride:][:cols], src[r*srcStride:])
	}
}

func first(b []uint8) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
