package tensor

// The three products of experts with block-scaled operands, as in grouped.go. The blocks of each
// operand lie along the dimension that is summed over.

import (
	"fmt"

	"spmoe/tensor/format"
	"spmoe/tensor/internal/gemm"
)

// GroupedMatMulScaled computes y = x·w[g]ᵀ for the rows of each group g, which ends before row
// ends[g]. A group may be empty.
//
// x: [rows, K]. w: [G·N, K], the weights of all groups one below the other. y: [rows, N], FP32 or
// BF16.
func GroupedMatMulScaled(ex *Exec, y Matrix, x, w Scaled, ends []int32) {
	x.check()
	w.check()
	checkExtent(w.Codes.Rows, len(ends)*y.Cols, "rows of weights")
	checkExtent(x.Codes.Cols, w.Codes.Cols, "elements along k")
	ex.byGroups(y.Cols, tileCols, flops(y, x.Codes), operands{c: y, scaled: [2]Scaled{x, w}, ends: ends}, func(ex *Exec, o operands, p groupPart) {
		first := p.group * o.c.Cols
		o.multiplyScaledPart(ex, p, o.scaled[1].RowSlice(first+p.col, first+p.endCol))
	})
}

// multiplyScaledPart is multiplyPart for block-scaled operands.
func (o *operands) multiplyScaledPart(ex *Exec, p groupPart, b Scaled) {
	c, a := o.c.RowSlice(p.row, p.endRow).ColSlice(p.col, p.endCol), o.scaled[0].RowSlice(p.row, p.endRow).gemmView()
	multiplyScaled(ex, c, a, b.gemmView(), false)
}

// GroupedDgradScaled computes dx = dy·w[g] for the rows of each group g.
//
// dy: [rows, N]. w: codes [G·N, K] with scales [G·ceil(N/32), K] of blocks along N. dx: [rows, K],
// FP32 or BF16.
func GroupedDgradScaled(ex *Exec, dx Matrix, dy, w Scaled, ends []int32) {
	dy.check()
	n := dy.Codes.Cols
	checkExtent(w.Codes.Rows, len(ends)*n, "rows of weights")
	checkExtent(w.Codes.Cols, dx.Cols, "columns of weights")
	checkExtent(w.Scales.Rows, len(ends)*ceilDiv(n, format.MXBlock), "blocks of weights")
	ex.byGroups(dx.Cols, tileCols, flops(dx, dy.Codes), operands{c: dx, scaled: [2]Scaled{dy, w}, ends: ends}, func(ex *Exec, o operands, p groupPart) {
		n := o.scaled[0].Codes.Cols
		o.multiplyScaledPart(ex, p, o.scaled[1].acrossRows(p.group*n, n, p.group*ceilDiv(n, format.MXBlock), p.col, p.endCol))
	})
}

// GroupedWgradScaled computes dw[g] = dyᵀ·x over the rows of each group g, or dw[g] += dyᵀ·x if
// accumulate is set.
//
// dy: codes [rows, N], x: codes [rows, K]. Both have blocks along rows. Each group starts a new
// block, and its blocks follow those of the previous group. dw: [G, N, K] FP32.
func GroupedWgradScaled(ex *Exec, dw Tensor, dy, x Scaled, ends []int32, accumulate bool) {
	checkExtent(dy.Codes.Rows, x.Codes.Rows, "rows of x")
	if !accumulate {
		ZeroEmptyGroups(ex, dw, ends)
	}
	work := 2 * x.Codes.Rows * x.Codes.Cols * dy.Codes.Cols
	ex.byGroups(dy.Codes.Cols, leastRows, work, operands{scaled: [2]Scaled{dy, x}, w: dw, ends: ends, accumulate: accumulate}, func(ex *Exec, o operands, p groupPart) {
		dy, x := o.scaled[0], o.scaled[1]
		c, rows, block := o.w.Index(p.group).Mat().RowSlice(p.col, p.endCol), p.endRow-p.row, o.blocksBefore(p.group)
		a, b := dy.acrossRows(p.row, rows, block, p.col, p.endCol), x.acrossRows(p.row, rows, block, 0, x.Codes.Cols)
		checkScaled(c, a, b)
		if !o.accumulate && o.w.Len() >= streamedGradient {
			gemm.MXStreamed(ex.packing(), c.gemmView(), a.gemmView(), b.gemmView())
		} else {
			gemm.MX(ex.packing(), c.gemmView(), a.gemmView(), b.gemmView(), o.accumulate)
		}
	})
}

// acrossRows returns columns [col, endCol) of n rows as a transposed operand. The blocks lie along
// the rows. The first of them is row block of the scales.
func (s Scaled) acrossRows(row, n, block, col, endCol int) Scaled {
	s.Codes = s.Codes.RowSlice(row, row+n).ColSlice(col, endCol).T()
	s.Scales = s.Scales.RowSlice(block, block+ceilDiv(n, format.MXBlock)).ColSlice(col, endCol).T()
	return s
}

// blocksBefore returns the number of blocks along rows in the groups before group g.
func (o *operands) blocksBefore(g int) int {
	blocks, lo := 0, int32(0)
	for _, hi := range o.ends[:g] {
		blocks += ceilDiv(int(hi-lo), format.MXBlock)
		lo = hi
	}
	return blocks
}

func checkExtent(got, want int, what string) {
	if got != want {
		panic(fmt.Sprintf("tensor: %d %s, want %d", got, what, want))
	}
}
