package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// Embed copies row ids[r] of table to row r of y. table: [vocab, n], y: [len(ids), n].
func Embed(ex *Exec, y Matrix, table Matrix, ids []int32) {
	checkIDs(y, ids)
	sameShape(table.RowSlice(0, 0), y.RowSlice(0, 0))
	rowParts(ex, y.Rows, y.Rows*y.Cols, lookup{table: table, rows: y, ids: ids}, embedRows)
}

// lookup is the arguments of Embed and EmbedBackward.
type lookup struct {
	table, rows Matrix
	ids         []int32
}

func embedRows(ex *Exec, l lookup, lo, hi int) {
	for r := lo; r < hi; r++ {
		id := int(l.ids[r])
		convertRows(ex, [5]Matrix{l.rows.RowSlice(r, r+1), l.table.RowSlice(id, id+1)})
	}
}

// EmbedBackward adds row r of dy to row ids[r] of dtable (FP32).
func EmbedBackward(ex *Exec, dtable, dy Matrix, ids []int32) {
	checkIDs(dy, ids)
	dtable.checkFP32Rows()
	sameShape(dtable.RowSlice(0, 0), dy.RowSlice(0, 0))
	tiles := (dy.Cols + tileCols - 1) / tileCols
	rowParts(ex, tiles, dy.Rows*dy.Cols, lookup{table: dtable, rows: dy, ids: ids}, embedBackwardColumns)
}

// embedBackwardColumns does columns [lo, hi), in tiles, of all rows: ids repeat, and every sum runs in the order of the rows.
func embedBackwardColumns(_ *Exec, l lookup, lo, hi int) {
	dtable, dy := columns(l.table, lo, hi), columns(l.rows, lo, hi)
	for r, id := range l.ids {
		row := dtable.RowSlice(int(id), int(id)+1).f32Row(0)
		if dy.dtype == BF16 {
			vec.AddScaledBF16(row, 1, dy.bf16Row(r))
		} else {
			vec.AddScaled(row, 1, dy.f32Row(r))
		}
	}
}

func checkIDs(rows Matrix, ids []int32) {
	rows.checkRows()
	if rows.Rows != len(ids) {
		panic(fmt.Sprintf("tensor: %d ids for %d rows", len(ids), rows.Rows))
	}
}
