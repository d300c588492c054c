package tensor

import "testing"

var (
	embedded   = []int32{4, 0, 4, 6, 4, 0} // ids repeat; 1, 2, 3, 5 are never asked for
	vocabulary = 7
)

func TestEmbed(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, stored := range floats {
			table, y := g.of(stored, vocabulary, oddCols), g.matrix(len(embedded), oddCols)
			Embed(ex, y.Matrix, table.Matrix, embedded)
			for r, id := range embedded {
				near(t, "row", y.RowSlice(r, r+1), values(table.RowSlice(int(id), int(id)+1)), absolute(0))
			}
			y.intact(t)
		}
	})
}
