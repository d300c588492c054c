package moe

// Tensor parallelism. The ranks of a tp group share sequences as those of a cp group do: see
// contextparallel.go. They also divide the products of dense layers, so that each reads and packs a
// part of the weights, which the host has once. No sum is divided:
//
//	y = x·Wᵀ     each rank computes some columns of y, for the rows of all ranks
//	dx = dy·W    each rank computes some columns of dx, whose sums go over all outputs
//	dW = dyᵀ·x   each rank of the host computes some rows of dW: see host
//
// Between these products, rows are divided: norms, residuals, routers and biases. So a product
// gathers its input, and stores its columns in the results of all ranks of the group. Columns
// are whole blocks of the recipe, and ranks may have unequal numbers of them.

import (
	"fmt"

	"spmoe/tensor"
)

// columnTile is the number of columns that ranks cannot divide: a tile of a product.
const columnTile = 32

// dividesColumns reports whether the ranks of a tp group divide the products of a layer with input
// x.
func (p phase) dividesColumns(l *linear, x *activation) bool {
	return p.cp != nil && p.cp.tensor != nil && l.host != nil && x.ends == nil
}

// columns returns the columns [lo, hi) of n that this rank computes, in whole units.
func (h *host) columns(n, unit int) (lo, hi int) {
	units, rank, ranks := (n+unit-1)/unit, h.comm.Rank(), h.comm.Size()
	return min(units*rank/ranks*unit, n), min(units*(rank+1)/ranks*unit, n)
}

// forwardColumns is the product of forward for a tp group. It is collective in the group.
func (l *linear) forwardColumns(p phase, y tensor.Tensor, x *activation) {
	unit, quantized := columnTile, l.mx.quantizesForward()
	if quantized {
		height, _ := l.mx.rows.BlockShape()
		unit = max(unit, height)
	}
	p.byColumns(y, x, quantized, unit, func(to tensor.Matrix, x *activation, lo, hi int) {
		if quantized {
			l.mx.Sum.MatMul(p.ex, to, x.rows, l.mx.rows.Whole().RowSlice(lo, hi))
		} else {
			l.sum.Multiply(p.ex, to, x.Mat(), l.W.Mat().RowSlice(lo, hi).T())
		}
	})
}

// backwardColumns is backwardInput for a tp group. It is collective in the group.
func (l *linear) backwardColumns(p phase, dx tensor.Tensor, dy *activation) {
	unit, quantized := columnTile, l.mx.quantizesDgrad()
	if quantized {
		_, width := l.mx.cols.BlockShape()
		unit = max(unit, width)
	}
	p.byColumns(dx, dy, quantized, unit, func(to tensor.Matrix, dy *activation, lo, hi int) {
		if quantized {
			l.mx.Sum.Dgrad(p.ex, to, dy.rows, l.mx.cols.Whole().ColSlice(p.ex, lo, hi))
		} else {
			l.sum.Multiply(p.ex, to, dy.Mat(), l.W.Mat().ColSlice(lo, hi))
		}
	})
}

// byColumns computes this rank's columns of a product, for the rows x of all ranks of the tp group,
// and stores them in y of each. y has this rank's rows. quantized says that the product reads the
// codes of x.
func (p phase) byColumns(y tensor.Tensor, x *activation, quantized bool, unit int, product func(to tensor.Matrix, x *activation, lo, hi int)) {
	h, rows := p.cp.tensor, y.Dim(0)
	lo, hi := h.columns(y.Dim(1), unit)
	mine := [][]byte{y.Bytes(), x.Bytes()}
	if quantized {
		mine = append(mine[:1], x.rows.Codes.Bytes(), x.rows.Scales.Bytes(), nil)
		if x.rows.Amax.Valid() {
			mine[3] = x.rows.Amax.Bytes()
		}
	}
	p.share(h, mine, func(lists [][][]byte) (bytes int, err error) {
		if lo == hi {
			return 0, nil
		}
		mark := p.ex.Mark()
		defer p.ex.Release(mark)
		whole, ok := x.gathered(p.ex, lists)
		if !ok {
			return 0, fmt.Errorf("the inputs of ranks do not fit")
		}
		part := p.ex.New(y.DType(), rows*len(lists), hi-lo)
		product(part.Mat(), &whole, lo, hi)
		for r, list := range lists {
			to, ok := rowsOf(list[0], y.DType(), rows, y.Dim(1))
			if !ok {
				return bytes, fmt.Errorf("the result of rank %d does not fit", r)
			}
			tensor.Convert(p.ex, to.ColSlice(lo, hi), part.Slice(r*rows, (r+1)*rows).Mat())
			for _, b := range list[1:] {
				bytes += len(b)
			}
		}
		return bytes + len(part.Bytes()), nil
	})
}

// gathered returns the rows of ranks as one matrix. The lists have, after another buffer, those of
// x: its elements, or its codes, scales and largest magnitude.
func (x *activation) gathered(ex *tensor.Exec, lists [][][]byte) (all activation, ok bool) {
	for _, list := range lists {
		for i, b := range list[1:] {
			if len(b) != len(lists[0][1+i]) {
				return all, false
			}
		}
	}
	parts, rows := joined(ex, lists, 1, len(lists[0])-1), x.Dim(0)*len(lists)
	if len(parts) == 1 {
		if ok = len(parts[0]) == rows*x.Dim(1)*x.DType().Size(); ok {
			all.Tensor = tensor.FromBytes(parts[0], x.DType(), rows, x.Dim(1))
		}
		return all, ok
	}
	codes := x.rows
	codes.Ends = nil
	all.rows, ok = codes.Like(rows, parts[0], parts[1], parts[2])
	return all, ok
}
