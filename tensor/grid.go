package tensor

// How the threads of a rank share a matrix product: each computes a cell of the result, for which
// it packs rows of a and columns of b. Cells are cut so that little is packed more than once. Each
// element is summed by one thread in the order of the contraction, whatever the number of threads.

// grid cuts a result into rows times cols cells.
type grid struct{ rows, cols int }

// tileCols and tileRows are what cells are made of. A result is not cut into cells of fewer than
// leastRows rows: with few rows, another kernel would give other bits.
const (
	tileCols  = 32
	tileRows  = 32
	leastRows = 128
)

// byCells calls body for cells [lo, hi) of o.c = o.a·o.b.
func (ex *Exec) byCells(work int, o operands, body func(ex *Exec, o operands, lo, hi int)) {
	o.grid = gridOf(o.c, o.a, o.b, ex.pieces(work))
	ex.inParts(o.grid.rows*o.grid.cols, 1, work, o, body)
}

// gridOf has as many cells as asked for, if c is large enough, and of those grids the one for which
// the least is packed.
func gridOf(c, a, b Matrix, pieces int) grid {
	var best grid
	least := 0
	for rows := 1; rows <= pieces; rows++ {
		if rows > 1 && c.Rows < rows*leastRows {
			break
		}
		g := grid{rows, min(pieces/rows, tiles(c.Cols, tileCols))}
		work := packWork(tiles(tiles(c.Rows, tileRows), g.rows)*tileRows, a.colStride != 1) + packWork(tiles(tiles(c.Cols, tileCols), g.cols)*tileCols, b.colStride != 1)
		cells, most := g.rows*g.cols, best.rows*best.cols
		if cells > most || cells == most && work < least {
			best, least = g, work
		}
	}
	return best
}

// packWork is about how long packing n rows of a, or columns of b, takes for an element of k: more
// if it has to transpose them.
func packWork(n int, transpose bool) int {
	if transpose {
		return 2 * n
	}
	return n
}

// tiles is how many tiles of a size n makes.
func tiles(n, size int) int { return (n + size - 1) / size }

// cell returns the rows and columns of a cell of m.
func (g grid) cell(m Matrix, i int) (row, endRow, col, endCol int) {
	row, endRow = cut(m.Rows, tileRows, i/g.cols, g.rows)
	col, endCol = cut(m.Cols, tileCols, i%g.cols, g.cols)
	return row, endRow, col, endCol
}

// cell returns what cell i of o.c is the product of.
func (o *operands) cell(i int) (m struct{ c, a, b Matrix }) {
	row, endRow, col, endCol := o.grid.cell(o.c, i)
	m.c = o.c.RowSlice(row, endRow).ColSlice(col, endCol)
	m.a, m.b = o.a.RowSlice(row, endRow), o.b.ColSlice(col, endCol)
	return m
}

// cut returns the i-th of n parts of so many elements, in whole tiles.
func cut(elements, size, i, n int) (lo, hi int) {
	all := tiles(elements, size)
	return min(all*i/n*size, elements), min(all*(i+1)/n*size, elements)
}

// columns returns tiles [lo, hi) of m's columns.
func columns(m Matrix, lo, hi int) Matrix {
	return m.ColSlice(min(lo*tileCols, m.Cols), min(hi*tileCols, m.Cols))
}
