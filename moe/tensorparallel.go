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
// reads the inputs of all ranks of the group, and stores its columns in their results. Columns are
// whole blocks of the recipe, and ranks may have unequal numbers of them.

import "spmoe/tensor"

// gatheredRows is the number of rows up to which a product gathers those of several ranks, so that
// they are multiplied together and a weight is packed once. A product of more rows reads them where
// they lie.
const gatheredRows = 512

// columnTile is the number of columns that ranks cannot divide: a tile of a product.
const columnTile = 32

// columns returns the columns [lo, hi) of n that this rank computes, in whole units.
func (g *peers) columns(n, unit int) (lo, hi int) {
	units, rank, ranks := (n+unit-1)/unit, g.comm.Rank(), g.comm.Size()
	return min(units*rank/ranks*unit, n), min(units*(rank+1)/ranks*unit, n)
}

// dividedColumns divides the products of dense layers among the ranks of a tp group.
type dividedColumns struct{}

// forward computes y = x·Wᵀ. It is collective in the group.
func (d dividedColumns) forward(p phase, l *linear, y tensor.Tensor, x *activation) {
	part := columnPart{y: y, x: x, quantized: l.mx.quantizesForward()}
	if !part.quantized {
		part.lo, part.hi = p.cp.tensor.columns(y.Dim(1), columnTile)
		w := l.W.Mat().RowSlice(part.lo, part.hi)
		part.product = func(to tensor.Matrix, x *activation) { l.sum.Multiply(p.ex, to, x.Mat(), w.T()) }
	} else {
		height, _ := l.mx.rows.BlockShape()
		part.lo, part.hi = p.cp.tensor.columns(y.Dim(1), max(columnTile, height))
		w := l.mx.rows.Whole().RowSlice(part.lo, part.hi)
		part.product = func(to tensor.Matrix, x *activation) { l.mx.Sum.MatMul(p.ex, to, x.rows, w) }
	}
	part.compute(p)
}

// backward computes dx = dy·W. It is collective in the group.
func (d dividedColumns) backward(p phase, l *linear, dx tensor.Tensor, dy *activation) {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	part := columnPart{y: dx, x: dy, quantized: l.mx.quantizesDgrad()}
	if !part.quantized {
		part.lo, part.hi = p.cp.tensor.columns(dx.Dim(1), columnTile)
		w := l.W.Mat().ColSlice(part.lo, part.hi)
		part.product = func(to tensor.Matrix, dy *activation) { l.sum.Multiply(p.ex, to, dy.Mat(), w) }
	} else {
		_, width := l.mx.cols.BlockShape()
		part.lo, part.hi = p.cp.tensor.columns(dx.Dim(1), max(columnTile, width))
		w := l.mx.cols.Whole().ColSlice(p.ex, part.lo, part.hi)
		part.product = func(to tensor.Matrix, dy *activation) { l.mx.Sum.Dgrad(p.ex, to, dy.rows, w) }
	}
	part.compute(p)
}

// columnPart is this rank's part of a product, the columns [lo, hi) of y for the rows of all ranks
// of the tp group. y and x have this rank's rows.
type columnPart struct {
	y         tensor.Tensor
	x         *activation
	quantized bool // the product reads the codes of x
	lo, hi    int
	product   func(to tensor.Matrix, x *activation)
}

// compute computes the columns and stores them in y of all ranks.
func (c columnPart) compute(p phase) {
	mine := [][]byte{c.y.Bytes(), c.x.Bytes()}
	if c.quantized {
		mine = append(mine[:1], c.x.rows.Codes.Bytes(), c.x.rows.Scales.Bytes(), nil)
		if c.x.rows.Amax.Valid() {
			mine[3] = c.x.rows.Amax.Bytes()
		}
	}
	p.share(p.cp.tensor, mine, func(lists [][][]byte) (bytes int) {
		if c.lo == c.hi {
			return 0
		}
		n := 1 // ranks whose rows are multiplied together
		for 2*n <= len(lists) && 2*n*c.y.Dim(0) <= gatheredRows {
			n *= 2
		}
		for r := 0; r < len(lists); r += n {
			c.multiply(p.ex, lists[r:r+n])
			for _, list := range lists[r : r+n] {
				for _, b := range list[1:] {
					bytes += len(b)
				}
				bytes += len(list[0]) / c.y.Dim(1) * (c.hi - c.lo)
			}
		}
		return bytes
	})
}

// multiply computes the columns for the rows of some ranks.
func (c columnPart) multiply(ex *tensor.Exec, lists [][][]byte) {
	mark := ex.Mark()
	defer ex.Release(mark)
	x := c.x.gathered(ex, lists)
	rows, all := c.y.Dim(0), tensor.Matrix{}
	if len(lists) > 1 {
		all = ex.New(c.y.DType(), rows*len(lists), c.hi-c.lo).Mat()
	}
	for r, list := range lists {
		to := tensor.MatrixFromBytes(list[0], c.y.DType(), rows, c.y.Dim(1))
		to = to.ColSlice(c.lo, c.hi)
		switch {
		case len(lists) == 1:
			c.product(to, &x)
			continue
		case r == 0:
			c.product(all, &x)
		}
		tensor.Convert(ex, to, all.RowSlice(r*rows, (r+1)*rows))
	}
}

// gathered returns the rows of ranks as one matrix, which is a copy unless there is one rank. The
// lists have, after another buffer, those of x: its elements, or its codes, scales and largest
// magnitude.
func (x *activation) gathered(ex *tensor.Exec, lists [][][]byte) (all activation) {
	parts, rows := lists[0][1:], x.Dim(0)*len(lists)
	if len(lists) > 1 {
		parts = joined(ex, lists, 1, len(parts))
	}
	if len(parts) == 1 {
		all.Tensor = tensor.FromBytes(parts[0], x.DType(), rows, x.Dim(1))
		return all
	}
	codes := x.rows
	codes.Ends = nil
	all.rows = codes.Like(rows, parts[0], parts[1], parts[2])
	return all
}
