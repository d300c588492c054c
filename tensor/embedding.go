package tensor

import "spmoe/tensor/internal/vec"

// Embed copies row ids[r] of table to row r of y. table: [vocab, n], y: [len(ids), n].
func Embed(ex *Exec, y Matrix, table Matrix, ids []int32) {
	for r, id := range ids {
		Convert(ex, y.RowSlice(r, r+1), table.RowSlice(int(id), int(id)+1))
	}
}

// EmbedBackward adds row r of dy to row ids[r] of dtable (FP32).
func EmbedBackward(ex *Exec, dtable, dy Matrix, ids []int32) {
	for r, id := range ids {
		vec.AddScaled(dtable.f32Row(int(id)), 1, ex.load(0, dy, r))
	}
}
