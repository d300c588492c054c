package ep

import (
	"fmt"
	"slices"
	"testing"

	"spmoe/tensor"
)

// aligned is the result with each group filled up with rows of zeros.
func (r *result) aligned(rows, hidden int) *result {
	filled, at := *r, 0
	filled.groupSizes, filled.rows, filled.dy = slices.Clone(r.groupSizes), nil, nil
	for e, n := range r.groupSizes {
		end := at + int(n)*hidden
		whole := (int(n) + rows - 1) / rows * rows
		zeros := make([]float32, (whole-int(n))*hidden)
		filled.rows = append(append(filled.rows, r.rows[at:end]...), zeros...)
		filled.dy = append(append(filled.dy, r.dy[at:end]...), zeros...)
		filled.groupSizes[e], at = int32(whole), end
	}
	return &filled
}

// An alignment adds rows of zeros and changes nothing else, whatever the memory held before.
func TestAlignment(t *testing.T) {
	for name, b := range cases() {
		for _, alignment := range []int{1, 3, 32} {
			for _, by := range oneSidedWays {
				for _, np := range []int{1, 2, 8} {
					for _, split := range splits(b.tokens(), np) {
						t.Run(fmt.Sprintf("%s/%d/%s/%v", name, alignment, by.name, split), func(t *testing.T) {
							got := b.run(t, by.with("aligned", Options{Alignment: alignment}), tensor.BF16, split)
							got.wantSame(t, b.reference(tensor.BF16).aligned(alignment, b.hidden))
						})
					}
				}
			}
		}
	}
}

// The same with codes on the wire, where padding is codes of zero.
func TestAlignmentOfCodes(t *testing.T) {
	b := newBatch(24, 64, 2, 8, normal)
	for _, by := range oneSidedWays {
		want := b.run(t, by.with("mxfp8", bothMXFP8), tensor.BF16, []int{10, 14})
		o := bothMXFP8
		o.Alignment = 32
		got := b.run(t, by.with("aligned", o), tensor.BF16, []int{10, 14})
		got.wantSame(t, want.aligned(32, b.hidden))
	}
}
