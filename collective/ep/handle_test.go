package ep

import (
	"errors"
	"fmt"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// Two passes are in flight on one exchange, whose backward calls come in either order: each handle
// keeps what its own need, and the rows lie in its arena.
func TestHandlesInFlight(t *testing.T) {
	const ranks = 4
	batches := [2]*batch{newBatch(24, 64, 2, 8, small), newBatch(40, 64, 3, 8, small)}
	for _, by := range ways {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			t.Run(fmt.Sprintf("%s/%v", by.name, order), func(t *testing.T) {
				var got [2][ranks]result
				err := by.run(ranks, func(c *collective.Comm) error {
					s, err := by.make(c, 8)
					if err != nil {
						return err
					}
					layout, err := NewLayout(8, ranks)
					if err != nil {
						return err
					}
					ex, r := newExec(c), c.Rank()
					var parts [2]*batch
					var handles [2]Handle
					for i, b := range batches {
						each := b.tokens() / ranks
						parts[i] = b.slice(r*each, (r+1)*each)
						handles[i].Rows = &tensor.Arena{Allocator: c.Allocator()}
						err = errors.Join(err, parts[i].forward(ex, s, &handles[i], layout, r, tensor.BF16, &got[i][r]))
					}
					for _, i := range order {
						before := handles[i].Rows.Mark()
						err = errors.Join(err, parts[i].backward(ex, s, &handles[i], layout, r, tensor.BF16, &got[i][r]))
						if none := (tensor.Mark{}); before == none || handles[i].Rows.Mark() == before {
							t.Errorf("rank %d: rows of pass %d are not in its arena", r, i)
						}
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				for i, b := range batches {
					join(got[i][:]).wantSame(t, b.reference(tensor.BF16))
				}
			})
		}
	}
}
