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

func TestEmbedBackward(t *testing.T) {
	ex := NewExec()
	eachLayout(t, func(t *testing.T, g *generator) {
		dtable, dy := g.of(FP32, vocabulary, oddCols), g.matrix(len(embedded), oddCols)
		want := values(dtable.Matrix)
		for r, id := range embedded {
			for j := range oddCols {
				*want.at(int(id), j) += get(dy.Matrix, r, j)
			}
		}
		EmbedBackward(ex, dtable.Matrix, 4, []Embedded{{dy.Matrix, embedded}})
		near(t, "dtable", dtable.Matrix, want, absolute(64*eps32))
		dtable.intact(t)
	})
}

func TestEmbedPanics(t *testing.T) {
	ex := NewExec()
	table, y := New(FP32, 4, 3).Mat(), New(FP32, 2, 3).Mat()
	for name, c := range map[string]struct {
		want string
		f    func()
	}{
		"id past the table":          {"rows [4, 5) of a matrix of 4", func() { Embed(ex, y, table, []int32{0, 4}) }},
		"negative id":                {"rows [-1, 0)", func() { Embed(ex, y, table, []int32{0, -1}) }},
		"gradient past the table":    {"rows [4, 5) of a matrix of 4", func() { EmbedBackward(ex, table, 1, []Embedded{{y, []int32{0, 4}}}) }},
		"gradient of a negative id":  {"rows [-1, 0)", func() { EmbedBackward(ex, table, 1, []Embedded{{y, []int32{0, -1}}}) }},
		"too few ids":                {"1 ids for 2 rows", func() { Embed(ex, y, table, []int32{0}) }},
		"too many ids":               {"3 ids for 2 rows", func() { EmbedBackward(ex, table, 1, []Embedded{{y, []int32{0, 1, 2}}}) }},
		"gradient table not in fp32": {"matrix of bf16", func() { EmbedBackward(ex, New(BF16, 4, 3).Mat(), 1, []Embedded{{y, []int32{0, 1}}}) }},
		"other width":                {"differ", func() { Embed(ex, y, New(FP32, 4, 5).Mat(), []int32{0, 1}) }},
		"gradient of other width":    {"differ", func() { EmbedBackward(ex, New(FP32, 4, 5).Mat(), 1, []Embedded{{y, []int32{0, 1}}}) }},
	} {
		t.Run(name, func(t *testing.T) { mustPanic(t, c.want, c.f) })
	}
}
