package gemm

// Sums over k by spans, for gradients of weights. There, k runs over the tokens of several
// sequences. The sum must not depend on how the sequences are distributed over ranks. Each span's
// product is what it would be alone. The spans' products are added as a balanced binary tree, and
// the ranks' sums continue that tree (collective.AllReduce).

import (
	"math/bits"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// mode says how c is computed: c = a·b, or c += a·b if add. With a span, a·b is tree(a·b over each
// span of k).
type mode struct {
	add    bool
	stream bool // c is not read soon; without add it may be stored past the caches
	span   int  // elements along k; 0: the sum is one chain, which begins at c if add
	// alpha multiplies each span's sum, or the whole one, after it is rounded to FP32. A product is
	// then added to c after that. 0: nothing multiplies it.
	alpha float32
	// blocks scale the sums of runs along k. They may not be combined with alpha.
	blocks *BlockScales
	// retained is the operand whose part b is, if it is to be packed once; without span, alpha and
	// blocks.
	retained *Retained
}

// whole reports whether sums must be complete in scratch before they are stored or added.
func (m mode) whole() bool { return m.alpha != 0 || m.blocks != nil }

// times multiplies sums by alpha.
func (m mode) times(sums View) {
	if m.alpha != 0 {
		for i := range sums.Rows {
			r := row[float32](sums, i)
			vec.Scale(r, m.alpha, r)
		}
	}
}

// round sets out to sums times alpha, rounded to BF16.
func (m mode) round(out, sums View) {
	if m.alpha == 0 {
		roundRows(out, sums)
		return
	}
	for i := range out.Rows {
		vec.ScaleBF16(row[uint16](out, i), m.alpha, row[float32](sums, i)[:out.Cols])
	}
}

// tree adds up tiles that are made one after the other. Let 2^i be the largest power of two below
// n, the number of tiles. For n > 1, the first 2^i tiles are one half of the sum and the rest are
// the other half. Each half is a tree itself.
type tree struct {
	tiles       unsafe.Pointer // pending sums; none has more leaves than the previous one
	rows, cols  int
	leaves      int // tiles of the complete tree
	count, open int // tiles made, sums pending
}

// tree returns an empty tree with room for leaves tiles.
func (s *Scratch) tree(rows, cols, leaves int) tree {
	return tree{
		tiles:  s.spans.atLeast(4 * rows * cols * (bits.Len(uint(leaves)) + 1)),
		rows:   rows,
		cols:   cols,
		leaves: leaves,
	}
}

// tile returns slot i. Slots below open hold pending sums, and the others are free.
func (t *tree) tile(i int) View {
	return strided(unsafe.Pointer(&t.at(i)[0]), t.rows, t.cols, t.cols, 1)
}

func (t *tree) at(i int) []float32 {
	n := t.rows * t.cols
	return unsafe.Slice((*float32)(unsafe.Add(t.tiles, 4*i*n)), n)
}

// ready returns how many pending sums the next tile completes, starting with the last.
func (t *tree) ready() int { return bits.TrailingZeros(uint(t.count + 1)) }

// push adds the next tile. The caller has already added the last added pending sums to it and
// stored the sum in the slot of the earliest of these. With added = 0, the tile is in slot open.
func (t *tree) push(added int) {
	left := t.ready() - added
	t.open += 1 - added
	t.count++
	if t.count == t.leaves {
		return // put adds up the rest, last of all in the destination
	}
	for range left {
		t.merge()
	}
}

func (t *tree) merge() {
	t.open--
	left := t.at(t.open - 1)
	vec.Add(left, left, t.at(t.open))
}

// put stores the complete sum in c or adds it there. c may have fewer columns than the tiles.
func (t *tree) put(c View, add bool) {
	for t.open > 2 || add && t.open > 1 {
		t.merge()
	}
	sum := t.at(0)
	for i := range c.Rows {
		to, from := row[float32](c, i), sum[i*t.cols:][:c.Cols]
		switch {
		case add:
			vec.Add(to, to, from)
		case t.open > 1: // the last merge writes to the destination
			vec.Add(to, from, t.at(1)[i*t.cols:][:c.Cols])
		default:
			copy(to, from)
		}
	}
}

// spanBlock bounds the rows and columns of a block of c in eachSpan.
const spanBlock = 128

// eachSpan computes the tree of the spans' products in c, block by block. It is for products that
// cannot cut k themselves. leaf sets dst to the part of the product at row i and column j of c,
// over n elements along k from element k on.
func (s *Scratch) eachSpan(c View, length int, m mode, leaf func(dst View, i, j, k, n int)) {
	if length == 0 && !m.add {
		zeroRows[float32](c)
	}
	for i := 0; i < c.Rows; i += spanBlock {
		for j := 0; j < c.Cols; j += spanBlock {
			block := c.slice(4, i, j, min(spanBlock, c.Rows-i), min(spanBlock, c.Cols-j))
			t := s.tree(block.Rows, block.Cols, (length+m.span-1)/m.span)
			for k := 0; k < length; k += m.span {
				leaf(t.tile(t.open), i, j, k, min(m.span, length-k))
				m.times(t.tile(t.open))
				t.push(0)
			}
			if length > 0 {
				t.put(block, m.add)
			}
		}
	}
}

// scaledSpans is eachSpan for block-scaled operands.
func (s *Scratch) scaledSpans(c View, a, b Scaled, m mode, leaf func(dst View, a, b Scaled)) {
	s.eachSpan(c, a.Codes.Cols, m, func(dst View, i, j, k, n int) {
		leaf(dst, a.rows(i, dst.Rows).along(k, n), b.rows(j, dst.Cols).along(k, n))
	})
}
