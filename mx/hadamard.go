package mx

// The Hadamard transform along the blocks of a matrix, with random signs or without.

import (
	"math"

	"spmoe/mx/internal/nvfp4"
	"spmoe/mx/internal/philox"
	"spmoe/mx/internal/quant"
	"spmoe/tensor"
)

// maxHadamard is the largest number of points of a transform.
const maxHadamard = 128

// Hadamard sets dst to the Hadamard transform of a format of x, in the type of dst: H·diag(s)/√n
// for each run of n = f.Hadamard elements along d, where H is Sylvester's matrix. The signs s are
// random but fixed, or 1 with f.NoSigns. The transform is orthogonal: a product of two transformed
// operands equals that of the operands.
//
// ends divides the rows into groups as in Tensor.Ends. A run does not extend over two groups. Where
// a group or a row ends within a run, the rest is transformed in runs of ever smaller powers of
// two.
//
// For 16 points, the random s is that of Transformer Engine.
func Hadamard(ex *tensor.Exec, dst, x tensor.Matrix, f Format, d Direction, ends []int32) {
	transformRuns(ex, dst, x, f, d, ends, false)
}

// InverseHadamard is the inverse of Hadamard.
func InverseHadamard(ex *tensor.Exec, dst, x tensor.Matrix, f Format, d Direction, ends []int32) {
	transformRuns(ex, dst, x, f, d, ends, true)
}

func transformRuns(ex *tensor.Exec, dst, x tensor.Matrix, f Format, d Direction, ends []int32, inverse bool) {
	h := hadamard{dst: dst, x: x, points: f.Hadamard, signs: f.hadamardSigns(), along: d, ends: ends, inverse: inverse}
	units := x.Rows
	if d == AlongCols {
		units = 0
		for range panels(ends, x.Rows, h.points) {
			units++
		}
	}
	tensor.Parallel(ex, units, hadamardOpsPerElement*x.Rows*x.Cols, h, transformRange)
}

// hadamardOpsPerElement is the cost of one element, in operations of a matrix product.
const hadamardOpsPerElement = 64

// transformed returns x, or its transform in scratch memory if the format of t has one.
func transformed(ex *tensor.Exec, t Tensor, x tensor.Matrix) tensor.Matrix {
	if t.Format.Hadamard == 0 {
		return x
	}
	h := ex.New(x.DType(), x.Rows, x.Cols).Mat()
	Hadamard(ex, h, x, t.Format, t.Blocks, t.Ends)
	return h
}

// hadamardSigns returns bits that say which signs of a format's transform are -1. The random ones
// of 16 points are Transformer Engine's.
func (f Format) hadamardSigns() [maxHadamard / 32]uint32 {
	switch {
	case f.NoSigns:
		return [4]uint32{}
	case f.Hadamard == 16:
		return [4]uint32{0xd7e8}
	}
	return philox.Block([2]uint32{}, [4]uint32{})
}

// hadamard holds the arguments of transformRange.
type hadamard struct {
	dst, x  tensor.Matrix
	points  int
	signs   [maxHadamard / 32]uint32
	along   Direction
	ends    []int32
	inverse bool
}

// transformRange transforms rows [lo, hi), or the rows of runs [lo, hi) if these are along columns.
func transformRange(ex *tensor.Exec, h hadamard, lo, hi int) {
	if h.along == AlongRows {
		row := ex.New(tensor.FP32, h.x.Cols).F32()
		for r := lo; r < hi; r++ {
			loadRow(row, h.x, r, 0)
			h.transform(row, 1)
			storeRow(h.dst, r, 0, row)
		}
		return
	}
	most := min(hadamardCols, ceilDiv(h.x.Cols, nvfp4.Block)*nvfp4.Block)
	values := ex.New(tensor.FP32, h.points*most).F32()
	for run, p := range panels(h.ends, h.x.Rows, h.points) {
		if run < lo || run >= hi {
			continue
		}
		for c := 0; c < h.x.Cols; c += most {
			h.transformTile(values, most, p.first, p.last, c)
		}
	}
}

// transformTile transforms rows [first, last) of width columns from column c on, fewer where the
// matrix ends. The scratch has room for them.
func (h *hadamard) transformTile(scratch []float32, width, first, last, c int) {
	n := min(width, h.x.Cols-c)
	row := func(r int) []float32 { return scratch[(r-first)*width:][:n] }
	for r := first; r < last; r++ {
		loadRow(row(r), h.x, r, c)
	}
	h.transformCols(scratch[:(last-first)*width], width)
	for r := first; r < last; r++ {
		storeRow(h.dst, r, c, row(r))
	}
}

// hadamardCols is the number of columns that are transformed at a time, so that a first-level cache
// holds them. It is a multiple of nvfp4.Block.
const hadamardCols = 512

// transformCols transforms rows of the given width along columns.
func (h *hadamard) transformCols(rows []float32, width int) {
	if len(rows) == nvfp4.Block*width && h.points == nvfp4.Block && !h.inverse && kernels == quant.Tiles {
		nvfp4.HadamardCols(rows, uint16(h.signs[0]))
		return
	}
	h.transform(rows, width)
}

// transform transforms the runs of a vector whose elements have width numbers each.
func (h *hadamard) transform(v []float32, width int) {
	for len(v) > 0 {
		points := h.points
		for points*width > len(v) {
			points /= 2
		}
		run := v[:points*width]
		if !h.inverse {
			h.flip(run, width)
		}
		butterflies(run, width)
		scale := float32(1 / math.Sqrt(float64(points)))
		tensor.Scale(run, scale, run)
		if h.inverse {
			h.flip(run, width)
		}
		v = v[points*width:]
	}
}

// flip multiplies the elements of a run by their signs.
func (h *hadamard) flip(run []float32, width int) {
	for i := range len(run) / width {
		if h.signs[i/32]>>(i%32)&1 != 0 {
			element := run[i*width : (i+1)*width]
			tensor.Scale(element, -1, element)
		}
	}
}

// butterflies multiplies a run by Sylvester's matrix.
func butterflies(run []float32, width int) {
	for half := width; half < len(run); half *= 2 {
		for at := 0; at < len(run); at += 2 * half {
			a, b := run[at:at+half], run[at+half:at+2*half]
			for i, x := range a {
				a[i], b[i] = x+b[i], x-b[i]
			}
		}
	}
}
