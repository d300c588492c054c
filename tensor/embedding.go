package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// Embed copies row ids[r] of table to row r of y. table: [vocab, n], y: [len(ids), n].
func Embed(ex *Exec, y Matrix, table Matrix, ids []int32) {
	checkIDs(y, ids)
	for r, id := range ids {
		Convert(ex, y.RowSlice(r, r+1), table.RowSlice(int(id), int(id)+1))
	}
}

// EmbedBackward adds row r of dy to row ids[r] of dtable (FP32).
func EmbedBackward(ex *Exec, dtable, dy Matrix, ids []int32) {
	checkIDs(dy, ids)
	dtable.checkFP32Rows()
	sameShape(dtable.RowSlice(0, 0), dy.RowSlice(0, 0))
	for r, id := range ids {
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
