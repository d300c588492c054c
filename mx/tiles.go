package mx

// Quantisation by the kernels of an instruction tier, a tile at a time. They want whole tiles: other input is copied to
// where zeros fill it up, and the output of a tile that the matrix cuts off goes through a buffer.

import (
	"unsafe"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// fast says whether the kernels are in use; set once, only tests change it.
var fast = quant.Supported(cpu.Best())

// tiles quantises x, which lies at that place, and reports whether there are kernels to do it.
func (q *quantizer) tiles(ex *tensor.Exec, x tensor.Matrix, at place) bool {
	if !fast || !tileable(q.format, x.DType()) {
		return false
	}
	width := (at.cols + quant.Cols - 1) / quant.Cols * quant.Cols
	in, stride := q.input(ex, x, width)
	s := (*scratch)(first(ex.New(tensor.UINT8, int(unsafe.Sizeof(scratch{}))).U8()))
	s.rule = q.tileRule()
	t := tiler{quantizer: *q, ex: ex, at: at, tile: quant.Tile{Work: &s.work, Rule: &s.rule, Stride: 2 * stride, Rows: at.rows}}
	if q.rows.wanted() {
		t.rows = output{q.rows.codesAt(at), q.rows.scalesAt(at), q.rows.Cols(), q.rows.Scales.Dim(1)}
	}
	if q.cols.wanted() {
		t.cols = output{q.cols.codesAt(at), q.cols.scalesAt(at), q.cols.Cols(), q.cols.Cols()}
	}
	for col := 0; col < at.cols; col += quant.Cols {
		t.tile.X = unsafe.Add(in, 2*col)
		switch {
		case quant.Scan(t.tile.X, t.tile.Stride, t.tile.Rule, t.tile.Work):
			t.odd(x, col)
		case at.cols-col < quant.Cols:
			t.encodeEdge(col)
		default:
			t.encode(col)
		}
	}
	return true
}

// tileable says whether there are kernels for a format. They see FP32 in 8 bits, which is too few for the 7 of INT8.
func tileable(f Format, dtype tensor.DType) bool {
	return f == E4M3 || f == E5M2 || f == INT8 && dtype == tensor.BF16
}

func (q *quantizer) tileRule() quant.Rule {
	if q.format == INT8 {
		return quant.Integer(q.rule.roundUp)
	}
	p := &minifloats[q.format]
	return quant.Minifloat(p.mantissa, q.rule.emax, p.largest, q.rule.roundUp)
}

// input returns BF16 elements that the kernels can read whole tiles of, and the distance of their
// rows: x itself where it is small and consists of whole tiles.
func (q *quantizer) input(ex *tensor.Exec, x tensor.Matrix, width int) (data unsafe.Pointer, stride int) {
	if data, stride, step := x.Memory(); q.inPlace && x.DType() == tensor.BF16 && x.Rows == quant.Rows && x.Cols == width && step == 1 {
		return data, stride
	}
	return unsafe.Pointer(&narrow(ex, padded(ex, x, width)).BF16()[0]), width
}

// padded returns x in 32 rows of width columns, the rest zeros.
func padded(ex *tensor.Exec, x tensor.Matrix, width int) tensor.Tensor {
	t := ex.New(x.DType(), quant.Rows, width)
	if x.Rows < quant.Rows || x.Cols < width {
		t.Zero()
	}
	tensor.Convert(ex, t.Mat().RowSlice(0, x.Rows).ColSlice(0, x.Cols), x)
	return t
}

// narrow returns x as the BF16 that the kernels take.
func narrow(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	if x.DType() == tensor.BF16 {
		return x
	}
	t := ex.New(tensor.BF16, x.Dims()...)
	quant.Narrow(unsafe.Pointer(&t.BF16()[0]), unsafe.Pointer(&x.F32()[0]), x.Len())
	return t
}

// An output is a direction's codes and scales from the panel's place on, and the lengths of their rows.
type output struct {
	codes, scales    []uint8
	stride, scaleRow int
}

// scratch is what the kernels keep in the arena, which aligns it.
type scratch struct {
	work quant.Work
	rule quant.Rule
}

// A tiler works off the tiles of one panel; col is where in the panel a tile begins.
type tiler struct {
	quantizer
	ex         *tensor.Exec
	at         place
	rows, cols output
	tile       quant.Tile
}

// odd quantises what the kernels refuse.
func (t *tiler) odd(x tensor.Matrix, col int) {
	mark := t.ex.Mark()
	cols := min(quant.Cols, t.at.cols-col)
	values := t.ex.New(tensor.FP32, t.at.rows, cols)
	tensor.Convert(t.ex, values.Mat(), x.ColSlice(col, col+cols))
	t.portable(values.F32(), place{t.at.row, t.at.col + col, t.at.rows, cols, t.at.block})
	t.ex.Release(mark)
}

// encode writes the tile that has been scanned.
func (t *tiler) encode(col int) {
	if t.rows.codes != nil {
		t.tile.RowCodes, t.tile.RowStride = first(t.rows.codes[col:]), t.rows.stride
		t.tile.RowScales, t.tile.RowScaleStep = first(t.rows.scales[col/BlockSize:]), t.rows.scaleRow
	}
	if t.cols.codes != nil {
		t.tile.ColCodes, t.tile.ColStride = first(t.cols.codes[col:]), t.cols.stride
		t.tile.ColScales = first(t.cols.scales[col:])
	}
	quant.Encode(&t.tile, t.rows.codes != nil, t.cols.codes != nil)
}

// encodeEdge writes a tile that is narrower than the kernels write.
func (t *tiler) encodeEdge(col int) {
	mark := t.ex.Mark()
	defer t.ex.Release(mark)
	buffer := func(cols int) []uint8 { return t.ex.New(tensor.UINT8, quant.Rows, cols).U8() }
	const perRow = quant.Cols / BlockSize
	rowCodes, rowScales, colCodes, colScales := buffer(quant.Cols), buffer(perRow), buffer(quant.Cols), buffer(perRow)
	t.tile.RowCodes, t.tile.RowStride = first(rowCodes), quant.Cols
	t.tile.RowScales, t.tile.RowScaleStep = first(rowScales), perRow
	t.tile.ColCodes, t.tile.ColStride = first(colCodes), quant.Cols
	t.tile.ColScales = first(colScales)
	quant.Encode(&t.tile, t.rows.codes != nil, t.cols.codes != nil)
	rows, cols := t.at.rows, t.at.cols-col
	if t.rows.codes != nil {
		copyRows(t.rows.codes[col:], t.rows.stride, rowCodes, quant.Cols, rows, cols)
		copyRows(t.rows.scales[col/BlockSize:], t.rows.scaleRow, rowScales, perRow, rows, blocks(cols))
	}
	if t.cols.codes != nil {
		copyRows(t.cols.codes[col:], t.cols.stride, colCodes, quant.Cols, rows, cols)
		copy(t.cols.scales[col:][:cols], colScales)
	}
}

// copyRows copies a matrix of rows by cols.
func copyRows(dst []uint8, dstStride int, src []uint8, srcStride, rows, cols int) {
	for r := range rows {
		copy(dst[r*dstStride:][:cols], src[r*srcStride:])
	}
}

func first(b []uint8) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
