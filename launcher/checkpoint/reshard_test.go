package checkpoint

import (
	"testing"
)

// Every range of one tensor, out of pieces that overlap, repeat, contain each other and come in any
// order.
func TestEveryRange(t *testing.T) {
	const n = 24
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	piece := func(begin, end int) Piece {
		return Piece{Name: "w", Shape: []int{2, 12}, Offset: int64(begin), Data: data[begin:end]}
	}
	r := commitShards(t,
		[]Piece{piece(20, 24), piece(0, 5)},
		[]Piece{piece(3, 11), piece(4, 6), piece(20, 22)},
		[]Piece{piece(11, 20), piece(0, 5)})
	for begin := range n + 1 {
		for end := begin; end <= n; end++ {
			checkReads(t, r, piece(begin, end))
		}
	}
}

func TestReadIntoRefuses(t *testing.T) {
	r := commitShards(t, []Piece{
		{Name: "w", Shape: []int{8}, Offset: 1, Data: make([]float32, 3)},
		{Name: "w", Shape: []int{8}, Offset: 5, Data: make([]float32, 2)},
		{Name: "unsaved", Shape: []int{2}},
	})
	for _, c := range []struct {
		name   string
		shape  []int
		offset int64
		n      int
		want   string
	}{
		{"v", []int{8}, 0, 1, `no tensor "v" among its 2`},
		{"w", []int{4, 2}, 0, 1, "shape [8], asked for [4 2]"},
		{"w", []int{8}, 7, 2, "leaves shape [8]"},
		{"w", []int{8}, -1, 1, "leaves shape [8]"},
		{"w", []int{8}, 0, 1, "no rank has saved element 0"},
		{"w", []int{8}, 1, 4, "no rank has saved element 4"},
		{"w", []int{8}, 5, 3, "no rank has saved element 7"},
		{"unsaved", []int{2}, 0, 2, "no rank has saved element 0"},
	} {
		err := r.ReadInto(Piece{Name: c.name, Shape: c.shape, Offset: c.offset, Data: make([]float32, c.n)})
		checkError(t, err, c.want, r.Path())
	}
	checkReads(t, r, Piece{Name: "w", Shape: []int{8}, Offset: 1, Data: make([]float32, 3)})
}
