package mx

// Products of few rows with NVFP4 weights. They are bound by reading weights, so a whole decoded
// copy in memory would cost more than the product. Instead a thread decodes the weights of some
// outputs into its caches, multiplies them, and goes on: memory is read once, as codes. The order
// in which an element is summed does not depend on the number of outputs, so results are those of
// a whole copy.

import (
	"spmoe/mx/internal/nvfp4"
	"spmoe/tensor"
)

const (
	// streamedRows is the largest mean number of rows per group. With more, packing the rows again
	// for each tile of weights costs more than a decoded copy.
	streamedRows = 32
	// streamedTile is the approximate size of a tile of decoded weights, in bytes. A second-level
	// cache holds it. Each tile copies the rows once, so smaller ones cost more.
	streamedTile = 512 << 10
)

// streamed holds the arguments of a product of groups of rows with NVFP4 weights.
type streamed struct {
	y, x    tensor.Matrix // x is decoded, without group scales
	w       Tensor        // [groups*outputs, k] along rows
	ends    []int32
	scales  []float32 // of the products of groups; nil: 1
	outputs int       // of a group
	tile    int       // outputs that are decoded together
}

// streams reports whether a product of x with the weights of some groups can and should be
// streamed.
func streams(y tensor.Matrix, x, w Tensor, groups int) bool {
	return w.Format.isNVFP4() && w.Blocks == AlongRows && x.Format.fitsBF16() && groups > 0 &&
		w.Rows()%(groups*nvfp4.Block) == 0 && y.Rows <= streamedRows*groups
}

// multiplyStreamed computes y = x·w[g]ᵀ for the rows of each group g. nil ends stand for one group.
func multiplyStreamed(ex *tensor.Exec, y tensor.Matrix, x, w Tensor, ends []int32) {
	groups := max(len(ends), 1)
	p := decodedProduct{ex: ex, mark: ex.Mark(), operands: [2]Tensor{x, w}, inBF16: true}
	defer p.release()
	if ends == nil {
		ends = ex.Ints(1)
		ends[0] = int32(y.Rows)
	}
	s := streamed{y: y, x: decodedCopy(ex, tensor.BF16, x).Mat(), w: w, ends: ends, scales: p.scales(groups), outputs: w.Rows() / groups}
	rows := max(streamedTile/(2*max(w.Cols(), 1))/nvfp4.Block, 1) * nvfp4.Block
	s.tile = min(rows, s.outputs)
	work := max(2*y.Rows, generalOpsPerElement*groups) * s.outputs * w.Cols()
	tensor.Parallel(ex, groups*s.tiles(), work, s, streamTiles)
}

// tiles returns the number of tiles of a group.
func (s *streamed) tiles() int { return ceilDiv(s.outputs, s.tile) }

// streamTiles multiplies tiles [lo, hi), counted over all groups.
func streamTiles(ex *tensor.Exec, s streamed, lo, hi int) {
	d := newTileDecoder(ex, s.w)
	memory := ex.New(tensor.BF16, s.tile*s.w.Cols())
	end := ex.New(tensor.INT32, 1).I32()
	if ex.Dry() {
		return
	}
	for i := lo; i < hi; i++ {
		g, first := i/s.tiles(), i%s.tiles()*s.tile
		begin := 0
		if g > 0 {
			begin = int(s.ends[g-1])
		}
		rows := int(s.ends[g]) - begin
		if rows == 0 {
			continue
		}
		n := min(s.tile, s.outputs-first)
		tile := memory.Slice(0, n*s.w.Cols()).Reshape(1, n, s.w.Cols())
		d.decode(tile.Index(0).Mat(), g*s.outputs+first, n)
		end[0] = int32(rows)
		y := s.y.RowSlice(begin, begin+rows).ColSlice(first, first+n)
		tensor.GroupedMatMulTimes(ex, y, s.x.RowSlice(begin, begin+rows), tile, end, only(s.scales, g))
	}
}

// only returns element i as a list; nil if there are none.
func only[T any](list []T, i int) []T {
	if len(list) == 0 {
		return nil
	}
	return list[i : i+1]
}

// A tileDecoder decodes adjacent rows. Rows of square blocks share their scales, and thus a table
// of the 16 numbers of each block.
type tileDecoder struct {
	rowDecoder
	tables []uint16
	all    []uint8 // all codes in order, for each block
}

func newTileDecoder(ex *tensor.Exec, t Tensor) tileDecoder {
	k := ceilDiv(t.Cols(), nvfp4.Block) * nvfp4.Block
	d := tileDecoder{newRowDecoder(ex, t), words(ex.New(tensor.BF16, k)), ex.New(tensor.UINT8, k/2).U8()}
	if !ex.Dry() {
		nvfp4.AllCodes(d.all)
	}
	return d
}

// loadTables reads the scales of a row of blocks, and makes their tables.
func (d *tileDecoder) loadTables(block int) {
	d.loadScales(block)
	nvfp4.DecodeRows(d.tables, d.all, d.scales)
}

// decode decodes n rows from first on without group scales. first is a multiple of the height of a
// block.
func (d *tileDecoder) decode(to tensor.Matrix, first, n int) {
	height, _ := d.t.BlockShape()
	tabled := height > 1 && d.cols%(2*nvfp4.Block) == 0
	for i := first; i < first+n; i++ {
		switch {
		case i%height != 0:
		case tabled:
			d.loadTables(i / height)
		default:
			d.loadScales(i / height)
		}
		if row := bf16Row(to, i-first); tabled {
			nvfp4.LookUp(row, d.stored.from(i, 0), d.tables)
		} else {
			d.decodeExact(row, i)
		}
	}
}
