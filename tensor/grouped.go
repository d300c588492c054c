package tensor

import (
	"fmt"

	"spmoe/tensor/internal/gemm"
	"spmoe/tensor/profile"
)

// Grouped matrix products. The rows of the activations form groups, one per expert, and each group
// has its own weight matrix. ends[g] is one past the last row of group g. A group may be empty.

// GroupedMatMul computes y = x·w[g]ᵀ for the rows of each group g.
//
// x: [rows, K], y: [rows, N], w: [G, N, K], ends: [G].
// The bits of a row do not depend on other rows.
func GroupedMatMul(ex *Exec, y, x Matrix, w Tensor, ends []int32) {
	defer ex.ProfilingProduct(productFamily(x, len(ends) > 1, profile.Forward), y.Rows, y.Cols, x.Cols, ends).End()
	ex.byGroups(y.Cols, tileCols, flops(y, x), operands{c: y, a: x, w: w, ends: ends}, func(ex *Exec, o operands, p groupPart) {
		o.multiplyPart(ex, p, o.w.Index(p.group).Mat().T().ColSlice(p.col, p.endCol))
	})
}

// GroupedDgrad computes dx = dy·w[g] for the rows of each group g. Shapes are as in
// GroupedMatMul.
func GroupedDgrad(ex *Exec, dx, dy Matrix, w Tensor, ends []int32) {
	defer ex.ProfilingProduct(productFamily(dy, len(ends) > 1, profile.Dgrad), dx.Rows, dx.Cols, dy.Cols, ends).End()
	ex.byGroups(dx.Cols, tileCols, flops(dx, dy), operands{c: dx, a: dy, w: w, ends: ends}, func(ex *Exec, o operands, p groupPart) {
		o.multiplyPart(ex, p, o.w.Index(p.group).Mat().ColSlice(p.col, p.endCol))
	})
}

// multiplyPart computes the part of c for a part of a group's rows and its operand b.
func (o *operands) multiplyPart(ex *Exec, p groupPart, b Matrix) {
	c, a := o.c.RowSlice(p.row, p.endRow).ColSlice(p.col, p.endCol), o.a.RowSlice(p.row, p.endRow)
	checkMatMul(c, a, b)
	matMul(ex, c, a, b, false)
}

// streamedGradient is the number of elements from which the gradients of all groups are stored past
// the caches. The gradients of all layers together then exceed the caches, so the optimizer would
// find little there.
const streamedGradient = 1 << 18

// GroupedWgrad computes dw[g] = dyᵀ·x over the rows of each group g, or dw[g] += dyᵀ·x if
// accumulate is set. dw: [G, N, K] FP32.
func GroupedWgrad(ex *Exec, dw Tensor, dy, x Matrix, ends []int32, accumulate bool) {
	defer ex.ProfilingProduct(productFamily(x, len(ends) > 1, profile.Wgrad), dy.Cols, x.Cols, x.Rows, ends).End()
	if !accumulate {
		ZeroEmptyGroups(ex, dw, ends)
	}
	// Divide the rows of dw, because their operand costs more to pack.
	ex.byGroups(dy.Cols, leastRows, 2*x.Rows*x.Cols*dy.Cols, operands{a: dy, b: x, w: dw, ends: ends, accumulate: accumulate}, func(ex *Exec, o operands, p groupPart) {
		c := o.w.Index(p.group).Mat().RowSlice(p.col, p.endCol)
		dy, x := o.a.RowSlice(p.row, p.endRow).ColSlice(p.col, p.endCol).T(), o.b.RowSlice(p.row, p.endRow)
		checkMatMul(c, dy, x)
		if o.a.dtype == BF16 && !o.accumulate && o.w.Len() >= streamedGradient {
			gemm.BF16Streamed(ex.packing(), c.gemmView(), dy.gemmView(), x.gemmView())
		} else {
			matMul(ex, c, dy, x, o.accumulate)
		}
	})
}

// ZeroEmptyGroups sets w[g] to zero for each group g without rows. No product writes these.
func ZeroEmptyGroups(ex *Exec, w Tensor, ends []int32) {
	begin := int32(0)
	for g, end := range ends {
		if end == begin {
			zero(ex, w.Index(g), w.Len() >= streamedGradient)
		}
		begin = end
	}
}

// byGroups calls body for each part of the products of all groups with rows. The columns of each
// group form o.grid.cols parts of at least least columns. There are enough parts that threads
// finish at about the same time, although some groups have more rows than others.
func (ex *Exec) byGroups(cols, least, work int, o operands, body func(ex *Exec, o operands, p groupPart)) {
	o.checkEnds()
	if ex.dry {
		o.room(ex, cols, work)
		return
	}
	pieces, groups := ex.productParts(work), len(o.ends)
	o.grid = grid{groups, 1}
	for o.grid.cols < pieces && groups*o.grid.cols < partsPerThread*pieces && 2*o.grid.cols*least <= cols {
		o.grid.cols *= 2
	}
	o.columns, o.part = cols, body
	ex.runInParts(groups*o.grid.cols, 1, work, o, groupParts)
}

// groupParts computes parts [lo, hi) of the products of all groups.
func groupParts(ex *Exec, o operands, lo, hi int) {
	for i := lo; i < hi; i++ {
		if p := o.groupPart(i); p.row < p.endRow {
			o.part(ex, o, p)
		}
	}
}

// fullest bounds the rows of a group, as a multiple of the mean. The loads of experts are that
// uneven while the learning rate rises; later the router's biases keep them closer.
const fullest = 4

// room counts the packing buffers of the product of the fullest group.
func (o *operands) room(ex *Exec, cols, work int) {
	dtype, rows := o.a.dtype, float64(o.a.Rows)
	if o.scaled[0].Codes.Rows > 0 {
		dtype, rows = UINT8, float64(o.scaled[0].Codes.Rows)
	}
	if rows == 0 {
		return
	}
	each := min(fullest*rows/float64(len(o.ends)), rows)
	if n := float64(o.c.Cols); o.c.Rows > 0 {
		ex.room.Add(each, n, float64(work)/(2*rows*n), dtype.packed(), 1)
	} else { // a gradient
		ex.room.Add(float64(cols), float64(o.w.Dim(-1)), each, dtype.packed(), 1)
	}
}

// groupPart is the range of rows of one group and a range of columns of its product.
type groupPart struct{ group, row, endRow, col, endCol int }

// groupPart returns part i of the products of all groups.
func (o *operands) groupPart(i int) (p groupPart) {
	p.group = i / o.grid.cols
	if p.group > 0 {
		p.row = int(o.ends[p.group-1])
	}
	p.endRow = int(o.ends[p.group])
	p.col, p.endCol = cutTiles(o.columns, tileCols, i%o.grid.cols, o.grid.cols)
	return p
}

func (o *operands) checkEnds() {
	lo := int32(0)
	for g, hi := range o.ends {
		if hi < lo {
			panic(fmt.Sprintf("tensor: group %d ends at row %d, before it begins at %d", g, hi, lo))
		}
		lo = hi
	}
}
