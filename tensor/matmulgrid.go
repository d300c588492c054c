package tensor

// How the threads of a rank share a matrix product. Each thread computes cells of the result. For a
// cell it packs rows of a and columns of b. The grid is chosen so that little is packed more than
// once. One thread sums each element in the order of the contraction, whatever the number of
// threads.

// grid divides a result into rows times cols cells.
type grid struct{ rows, cols int }

// tileCols and tileRows are the size of the tiles that make up a cell. A result is not divided into
// cells of fewer than leastRows rows, because each packs the right operand again.
const (
	tileCols  = 32
	tileRows  = 32
	leastRows = 128
)

// byCells calls body for cells [lo, hi) of o.c = o.a·o.b.
func (ex *Exec) byCells(work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	if ex.dry {
		leaves := 1
		if o.span > 0 {
			leaves = ceilDiv(o.a.Cols, o.span)
		}
		ex.room.Add(float64(o.c.Rows), float64(o.c.Cols), float64(o.a.Cols), o.a.dtype.packed(), leaves)
		return
	}
	o.grid = chooseGrid(o.c, o.a, o.b, ex.productParts(work))
	ex.runInParts(o.grid.rows*o.grid.cols, 1, work, o, body)
}

// chooseGrid returns a grid with the given number of cells, or fewer if c is small. Among the grids
// with that many cells, it returns the one with the least packing work.
func chooseGrid(c, a, b Matrix, parts int) grid {
	var best grid
	least := 0
	for rows := 1; rows <= parts; rows++ {
		if rows > 1 && c.Rows < rows*leastRows {
			break
		}
		g := grid{rows, min(parts/rows, ceilDiv(c.Cols, tileCols))}
		work := packWork(ceilDiv(ceilDiv(c.Rows, tileRows), g.rows)*tileRows, a.colStride != 1) + packWork(ceilDiv(ceilDiv(c.Cols, tileCols), g.cols)*tileCols, b.colStride != 1)
		cells, most := g.rows*g.cols, best.rows*best.cols
		if cells > most || cells == most && work < least {
			best, least = g, work
		}
	}
	return best
}

// packWork estimates the time to pack n rows of a, or n columns of b, per element of k. Transposing
// doubles it.
func packWork(n int, transpose bool) int {
	if transpose {
		return 2 * n
	}
	return n
}

// ceilDiv returns n/size rounded up, such as the number of tiles that cover n elements.
func ceilDiv(n, size int) int { return (n + size - 1) / size }

// cell returns the rows and columns of cell i of m.
func (g grid) cell(m Matrix, i int) (row, endRow, col, endCol int) {
	row, endRow = cutTiles(m.Rows, tileRows, i/g.cols, g.rows)
	col, endCol = cutTiles(m.Cols, tileCols, i%g.cols, g.cols)
	return row, endRow, col, endCol
}

// cell returns cell i of o.c and the operands whose product it is.
func (o *operands) cell(i int) (m struct{ c, a, b Matrix }) {
	row, endRow, col, endCol := o.grid.cell(o.c, i)
	m.c = o.c.RowSlice(row, endRow).ColSlice(col, endCol)
	m.a, m.b = o.a.RowSlice(row, endRow), o.b.ColSlice(col, endCol)
	return m
}

// cutTiles returns the range of part i of n when elements are divided into n parts of whole tiles.
func cutTiles(elements, size, i, n int) (lo, hi int) {
	all := ceilDiv(elements, size)
	return min(all*i/n*size, elements), min(all*(i+1)/n*size, elements)
}

// columns returns the columns of m in tiles [lo, hi).
func columns(m Matrix, lo, hi int) Matrix {
	return m.ColSlice(min(lo*tileCols, m.Cols), min(hi*tileCols, m.Cols))
}
