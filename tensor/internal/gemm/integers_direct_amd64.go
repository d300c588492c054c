//go:build amd64 && !purego

package gemm

// MXINT8 with few rows of a. b is read in place once instead of being packed.

import (
	"unsafe"

	"spmoe/tensor/format"
)

var (
	directInt8Along = [directHeight + 1]func(t *tile, scales unsafe.Pointer, ahead int){
		nil, directInt8Alongx1AVX512, directInt8Alongx2AVX512, directInt8Alongx3AVX512, directInt8Alongx4AVX512, directInt8Alongx5AVX512, directInt8Alongx6AVX512,
		directInt8Alongx7AVX512, directInt8Alongx8AVX512, directInt8Alongx9AVX512, directInt8Alongx10AVX512, directInt8Alongx11AVX512, directInt8Alongx12AVX512,
	}
)

const (
	directHeight = 12       // largest number of rows of a
	directAhead  = 32 << 10 // fewest bytes from where b is read to where it is prefetched

	directInt8Columns = 16 // rows of b per kernel call
)

// directInt8 reads b once, in place.
var directInt8 = fewInt8{
	accepts: func(a, b operand, _ mode) bool {
		return a.Rows <= directHeight && b.Rows >= directInt8Columns && b.rowMajor() && b.scales.rowMajor()
	},
	sums: (*Scratch).directInt8,
}

// directInt8 packs a as a column panel.
func (s *Scratch) directInt8(_ *microkernel, sum View, a, b operand, startAtSum bool) bool {
	panel := s.a.atLeast(4 * recordSteps * (a.Cols / format.MXBlock) * a.Rows)
	s.calls.decoding.reset()
	s.records(panel, a, panelShape{height: a.Rows, width: a.Rows, columns: true})
	if !s.calls.decoding.exact(a) {
		return false
	}
	s.calls.tile = tile{a: panel, sumStride: 4 * sum.RowStride}
	if startAtSum {
		s.calls.tile.startAtSum = 1
	}
	s.calls.decoding.reset()
	s.directAlong(sum, b)
	return s.calls.decoding.exact(b)
}

// lastColumns returns the last group of columns and a mask of those in it that are not done. The
// first done columns of the product are.
func lastColumns(columns, done int) (j, mask int) {
	j = columns - directInt8Columns
	return j, 1<<directInt8Columns - 1<<(done-j)
}

func (s *Scratch) directAlong(sum View, b operand) {
	const columns = directInt8Columns
	t := &s.calls.tile
	t.aStride, t.steps, t.columns = b.RowStride, b.Cols/format.MXBlock, 1<<columns-1
	group := columns * b.RowStride
	ahead := (directAhead/group + 1) * group
	scales := s.chunks.atLeast(4 * columns * t.steps)
	for j := 0; j < b.Rows; j += columns {
		first := j
		if j+columns > b.Rows {
			first, t.columns = lastColumns(b.Rows, j)
		}
		s.packScales(scales, b.scales.slice(1, first, 0, columns, b.scales.Cols), 4*columns, 0)
		t.b, t.sum = unsafe.Pointer(at[uint8](b.View, first, 0)), unsafe.Pointer(at[float32](sum, 0, first))
		callDirectAlong(t, sum.Rows, scales, ahead)
	}
}

// callDirectAlong is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func callDirectAlong(t *tile, rows int, scales unsafe.Pointer, ahead int) {
	directInt8Along[rows](t, scales, ahead)
}
