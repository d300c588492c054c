package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// Rows of several blocks, such as the residual streams of a token side by side.

// BlockMix is a term of MixBlocks: blocks of one width, with weights for each row.
type BlockMix struct {
	X Matrix // [rows, blocks·width]
	// [rows, blocks·(blocks of the result)] FP32: the weight of block i in block j of the result is
	// element i·(blocks of the result) + j of a row, or j·blocks + i
	W          Tensor
	Transposed bool
}

// MixBlocks sets each block of the rows of dst, [rows, blocks·width], to the weighted sum of the
// blocks of all terms, in FP32 and in their order. It rounds once. dst may be the X of a term. A
// second term without X is left out.
func MixBlocks(ex *Exec, dst Matrix, blocks int, terms [2]BlockMix) {
	width := dst.Cols / blocks
	for _, m := range terms {
		n := m.X.Cols / width
		if m.X.Rows > 0 && (m.X.Rows != dst.Rows || m.X.Cols != n*width || m.W.Len() != dst.Rows*n*blocks) {
			panic(fmt.Sprintf("tensor: blocks [%d, %d] with %d weights in %d blocks [%d, %d]", m.X.Rows, m.X.Cols, m.W.Len(), blocks, dst.Rows, dst.Cols))
		}
	}
	defer ex.describeRows(dst).End()
	job := blockMixing{dst: dst, blocks: blocks, width: width, terms: terms}
	forRows(ex, dst.Rows, dst.Rows*(terms[0].X.Cols+terms[1].X.Cols)*blocks, job, mixBlocksRows)
}

// blockMixing holds the arguments of MixBlocks.
type blockMixing struct {
	dst           Matrix
	blocks, width int
	terms         [2]BlockMix
}

func mixBlocksRows(ex *Exec, b blockMixing, lo, hi int) {
	sum := ex.scratchRow(1, b.dst.Cols)
	for r := lo; r < hi; r++ {
		clear(sum)
		for _, term := range b.terms {
			n := term.X.Cols / b.width
			for i := range n * b.blocks {
				from, to := i/b.blocks, i%b.blocks
				at := i
				if term.Transposed {
					at = to*n + from
				}
				addBlock(block(sum, to, b.width), term.W.F32()[r*n*b.blocks+at], term.X, r, from)
			}
		}
		setRow(b.dst, r, sum)
	}
}

// addBlock adds a·x to sum, where x is a block of row r of m.
func addBlock(sum []float32, a float32, m Matrix, r, i int) {
	if m.dtype == BF16 {
		vec.AddScaledBF16(sum, a, block(m.bf16Row(r), i, len(sum)))
	} else {
		vec.AddScaled(sum, a, block(m.f32Row(r), i, len(sum)))
	}
}

// BlockDots sets element i·m + j of each row of dst, FP32, to the inner product of block i of x and
// block j of y, which has m blocks of the given width.
func BlockDots(ex *Exec, dst Tensor, x, y Matrix, width int) {
	if x.Rows != y.Rows || dst.Len() != x.Rows*(x.Cols/width)*(y.Cols/width) {
		panic(fmt.Sprintf("tensor: products of blocks of %d in [%d, %d] and [%d, %d] into %d", width, x.Rows, x.Cols, y.Rows, y.Cols, dst.Len()))
	}
	defer ex.describeRows(x).End()
	forRows(ex, x.Rows, x.Rows*x.Cols*(y.Cols/width), blockDots{dst, x, y, width}, blockDotsRows)
}

// blockDots holds the arguments of BlockDots.
type blockDots struct {
	dst   Tensor
	x, y  Matrix
	width int
}

func blockDotsRows(_ *Exec, b blockDots, lo, hi int) {
	n, m := b.x.Cols/b.width, b.y.Cols/b.width
	dst := b.dst.F32()
	for r := lo; r < hi; r++ {
		for at := range n * m {
			dst[r*n*m+at] = b.dot(r, at/m, at%m)
		}
	}
}

// dot returns the inner product of block i of row r of x and block j of y.
func (b blockDots) dot(r, i, j int) float32 {
	if b.x.dtype == BF16 {
		return vec.DotBF16(block(b.x.bf16Row(r), i, b.width), block(b.y.bf16Row(r), j, b.width))
	}
	return vec.Dot(block(b.x.f32Row(r), i, b.width), block(b.y.f32Row(r), j, b.width))
}

// block returns block i of a row.
func block[T uint16 | float32](row []T, i, width int) []T { return row[i*width:][:width] }
