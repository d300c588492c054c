package checkpoint_test

import (
	"fmt"
	"os"
	"path/filepath"

	"spmoe/launcher/checkpoint"
)

// Two ranks save a tensor of six elements, and one rank loads all of it.
func Example() {
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(dir)

	// The first rank starts the checkpoint of step 10, and the other one joins.
	first, err := checkpoint.NewWriter(checkpoint.Disk{}, dir, 10, 2)
	check(err)
	second, err := checkpoint.Join(checkpoint.Disk{}, dir, 10, 2)
	check(err)
	piece := func(offset int64, data ...float32) []checkpoint.Piece {
		return []checkpoint.Piece{{Name: "master/w", Shape: []int{2, 3}, Offset: offset, Data: data}}
	}
	check(first.WriteShard(0, piece(0, 1, 2, 3, 4), nil))
	check(second.WriteShard(1, piece(4, 5, 6), nil))
	check(first.Commit(map[string]int{"tokens": 640}, []byte("seq = 64\n")))

	newest, err := checkpoint.Open(dir)
	check(err)
	defer newest.Close()
	all := piece(0, make([]float32, 6)...)[0]
	check(newest.ReadInto(all))
	fmt.Println(filepath.Base(newest.Path()), newest.Ranks(), all.Data)
	// Output: step-00000010 2 [1 2 3 4 5 6]
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
