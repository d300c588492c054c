package tensor

import "fmt"

const (
	// symmetricBand is the number of rows of a symmetric product that are computed together.
	symmetricBand = 256
	// mirrorBlock is the side of the blocks in which a matrix is mirrored. Two fit into the
	// first-level cache.
	mirrorBlock = 32
)

// MatMulSymmetric is [MatMul] for a product that is known to be symmetric, such as a·aᵀ. It
// computes the lower half in bands of rows, each as far as its last diagonal element, and mirrors
// it.
func MatMulSymmetric(ex *Exec, c, a, b Matrix) {
	if c.Rows != c.Cols {
		panic(fmt.Sprintf("tensor: a symmetric product of shape [%d, %d]", c.Rows, c.Cols))
	}
	for lo := 0; lo < c.Rows; lo += symmetricBand {
		hi := min(lo+symmetricBand, c.Rows)
		MatMul(ex, c.RowSlice(lo, hi).ColSlice(0, hi), a.RowSlice(lo, hi), b.ColSlice(0, hi))
	}
	forRows(ex, ceilDiv(c.Rows, mirrorBlock), c.Rows*c.Cols, c, mirrorBlocks)
}

// mirrorBlocks sets what is above the diagonal in blocks [lo, hi) of rows to what is below it.
func mirrorBlocks(_ *Exec, c Matrix, lo, hi int) {
	for ; lo < hi; lo++ {
		first, last := lo*mirrorBlock, min((lo+1)*mirrorBlock, c.Rows)
		for from := first; from < c.Rows; from += mirrorBlock {
			for r := from; r < min(from+mirrorBlock, c.Rows); r++ {
				for i := first; i < min(last, r); i++ {
					if c.dtype == BF16 {
						c.bf16Row(i)[r] = c.bf16Row(r)[i]
					} else {
						c.f32Row(i)[r] = c.f32Row(r)[i]
					}
				}
			}
		}
	}
}
