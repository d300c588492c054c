package mx

// Products in plain Go with sums in FP64: any format, any tier, the same bits everywhere.

import (
	"math/bits"
	"unsafe"

	"spmoe/tensor"
)

// elementwise adds the products of decoded elements as SumExact does.
type elementwise struct{}

func (elementwise) continues(Format, Format) bool { return false }

func (elementwise) decode(ex *tensor.Exec, a, b Tensor) (x, y tensor.Matrix) {
	return decodedCopy(ex, tensor.FP32, a), decodedCopy(ex, tensor.FP32, b)
}

func (e elementwise) multiply(p product, c tensor.Matrix, a, b part) {
	e.gradient(p, c, a, b, 0, false)
}

func (elementwise) gradient(p product, c tensor.Matrix, a, b part, span int, accumulate bool) {
	scale := float32(1)
	if !p.ex.Dry() {
		scale = groupScales(a, b)
	}
	multiplyExactly(p.ex, c, a.Matrix, b.Matrix, scale, span, accumulate)
}

// tile is the number of rows and of columns of c that are summed together.
const tile = 4

// tileArgs holds the arguments of multiplyTiles.
type tileArgs struct {
	c, a, b    tensor.Matrix // [M, N], [M, K], [N, K]
	scale      float32
	span       int // elements along K that are summed together
	accumulate bool
}

// multiplyExactly computes c = scale·a·bᵀ, or adds it to c. With a span, the sums of the spans are
// rounded and added as in tensor.Wgrad. A span of 0 covers all of K.
func multiplyExactly(ex *tensor.Exec, c, a, b tensor.Matrix, scale float32, span int, accumulate bool) {
	if span == 0 {
		span = max(a.Cols, 1)
	}
	args := tileArgs{c: c, a: a, b: b, scale: scale, span: span, accumulate: accumulate}
	tensor.Parallel(ex, ceilDiv(c.Rows, tile), elementwiseOps*c.Rows*c.Cols*a.Cols, args, multiplyTiles)
}

// elementwiseOps is the cost of a term, in operations of a matrix product.
const elementwiseOps = 64

// multiplyTiles computes rows [lo, hi) of tiles.
func multiplyTiles(ex *tensor.Exec, t tileArgs, lo, hi int) {
	k := t.a.Cols
	a, b := ex.New(tensor.FP32, k, tile).F32(), ex.New(tensor.FP32, k, tile).F32()
	rows := ex.New(tensor.FP32, tile, t.c.Cols)
	for i := lo * tile; i < min(hi*tile, t.c.Rows); i += tile {
		packTile(a, t.a, i)
		for j := 0; j < t.c.Cols; j += tile {
			packTile(b, t.b, j)
			sums := t.sumSpans(a, b)
			for r := range tile {
				copy(rows.Index(r).F32()[j:], sums[r*tile:(r+1)*tile])
			}
		}
		last := min(i+tile, t.c.Rows)
		to, from := t.c.RowSlice(i, last), rows.Slice(0, last-i).Mat()
		if t.accumulate {
			tensor.Add(ex, to, to, from)
		} else {
			tensor.Convert(ex, to, from)
		}
	}
}

// packTile sets to to rows [first, first+tile) of an FP32 matrix, transposed. Missing rows are
// zeros.
func packTile(to []float32, m tensor.Matrix, first int) {
	clear(to)
	data, rowStride, colStride := m.Memory()
	for r := range min(tile, m.Rows-first) {
		at := unsafe.Add(data, 4*(first+r)*rowStride)
		for k := range m.Cols {
			to[k*tile+r] = *(*float32)(unsafe.Add(at, 4*k*colStride))
		}
	}
}

// A sumsTile holds one number for each element of a tile, row by row.
type sumsTile [tile * tile]float32

// sumSpans sums the spans of a packed tile and adds them up as a tree.
func (t *tileArgs) sumSpans(a, b []float32) sumsTile {
	var pending [bits.UintSize]sumsTile // none has more leaves than the previous one
	open, count := 0, 0
	for k := 0; k < len(a); k += t.span * tile {
		end := min(k+t.span*tile, len(a))
		pending[open] = t.sumTile(a[k:end], b[k:end])
		open++
		count++
		for range bits.TrailingZeros(uint(count)) {
			pending[open-2].add(&pending[open-1])
			open--
		}
	}
	for ; open > 1; open-- {
		pending[open-2].add(&pending[open-1])
	}
	return pending[0]
}

func (s *sumsTile) add(t *sumsTile) {
	for i, v := range t {
		s[i] += v
	}
}

// sumTile sums one span and multiplies by the scale.
func (t *tileArgs) sumTile(a, b []float32) (out sumsTile) {
	sums := sumExact(a, b)
	for i, s := range sums {
		out[i] = float32(s * float64(t.scale))
	}
	return out
}

// sumExact adds up the products along k in FP64. The conversion keeps the compiler from fusing
// multiplication and addition, which would make results depend on the architecture.
func sumExact(a, b []float32) (sums [tile * tile]float64) {
	for i := range tile {
		var s0, s1, s2, s3 float64
		for k := 0; k+tile <= len(a); k += tile {
			x := float64(a[k+i])
			s0 += float64(x * float64(b[k]))
			s1 += float64(x * float64(b[k+1]))
			s2 += float64(x * float64(b[k+2]))
			s3 += float64(x * float64(b[k+3]))
		}
		sums[i*tile], sums[i*tile+1], sums[i*tile+2], sums[i*tile+3] = s0, s1, s2, s3
	}
	return sums
}
