package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// Convert copies src to dst and converts the element type if it differs. With a nil ex it runs on
// the calling thread.
func Convert(ex *Exec, dst, src Matrix) {
	sameShape(dst, src)
	ex.elementwise(convertRows, dst, src)
}

func convertRows(_ *Exec, m [5]Matrix) {
	dst, src := m[0], m[1]
	for r := range dst.Rows {
		switch {
		case dst.dtype == src.dtype && dst.dtype == BF16:
			copy(dst.bf16Row(r), src.bf16Row(r))
		case dst.dtype == src.dtype:
			copy(dst.f32Row(r), src.f32Row(r))
		case dst.dtype == BF16:
			vec.Round(dst.bf16Row(r), src.f32Row(r))
		default:
			vec.Widen(dst.f32Row(r), src.bf16Row(r))
		}
	}
}

// Zero sets every element to zero. It writes a large tensor past the caches, because the next
// reader would find little of it there.
func Zero(ex *Exec, t Tensor) { zero(ex, t, len(t.Bytes()) >= streamedBytes) }

// zero is Zero past the caches, or not.
func zero(ex *Exec, t Tensor, streams bool) {
	x, parts := t.Bytes(), clearParts
	if streams {
		parts = streamZeros
	}
	forRows(ex, ceilDiv(len(x), pieceBytes), len(x)/4, x, parts)
}

// pieceBytes is the unit in which bytes are copied or cleared: a few pages.
const pieceBytes = 16 << 10

// pieces returns pieces [lo, hi) of x.
func pieces(x []byte, lo, hi int) []byte { return x[lo*pieceBytes : min(hi*pieceBytes, len(x))] }

func clearParts(_ *Exec, x []byte, lo, hi int) { clear(pieces(x, lo, hi)) }

func streamZeros(_ *Exec, x []byte, lo, hi int) {
	var zeros [pieceBytes]byte
	for ; lo < hi; lo++ {
		piece := pieces(x, lo, lo+1)
		CopyStreaming(piece, zeros[:len(piece)])
	}
	StreamingFence()
}

// StreamCopy copies src to dst past the caches. It is for data that is read much later. Both
// tensors have the same type and shape.
func StreamCopy(ex *Exec, dst, src Tensor) {
	if dst.dtype != src.dtype || dst.dims != src.dims {
		panic(fmt.Sprintf("tensor: StreamCopy of %v %v to %v %v", src.dtype, src.Dims(), dst.dtype, dst.Dims()))
	}
	job := streamCopy{dst.Bytes(), src.Bytes()}
	forRows(ex, ceilDiv(len(job.dst), pieceBytes), len(job.dst)/4, job, streamCopyParts)
}

// streamCopy holds the arguments of StreamCopy.
type streamCopy struct{ dst, src []byte }

func streamCopyParts(_ *Exec, s streamCopy, lo, hi int) {
	for ; lo < hi; lo++ {
		CopyStreaming(pieces(s.dst, lo, lo+1), pieces(s.src, lo, lo+1))
	}
	StreamingFence()
}

// Add computes dst = x + y. dst may be x or y.
func Add(ex *Exec, dst, x, y Matrix) {
	sameShape(dst, x)
	sameShape(dst, y)
	ex.elementwise(addRows, dst, x, y)
}

func addRows(ex *Exec, m [5]Matrix) {
	dst, x, y := m[0], m[1], m[2]
	if allBF16(dst, x, y) {
		for r := range dst.Rows {
			vec.AddBF16(dst.bf16Row(r), x.bf16Row(r), y.bf16Row(r))
		}
		return
	}
	for r := range dst.Rows {
		out := ex.target(2, dst, r)
		vec.Add(out, ex.load(0, x, r), ex.load(1, y, r))
		ex.store(dst, r, out)
	}
}

// SwiGLU computes h = silu(gate)·up elementwise.
func SwiGLU(ex *Exec, h, gate, up Matrix) {
	sameShape(h, gate)
	sameShape(h, up)
	ex.elementwise(swiGLURows, h, gate, up)
}

func swiGLURows(ex *Exec, m [5]Matrix) {
	h, gate, up := m[0], m[1], m[2]
	if allBF16(h, gate, up) {
		for r := range h.Rows {
			vec.SwiGLUBF16(h.bf16Row(r), gate.bf16Row(r), up.bf16Row(r))
		}
		return
	}
	for r := range h.Rows {
		out := ex.target(2, h, r)
		vec.SwiGLU(out, ex.load(0, gate, r), ex.load(1, up, r))
		ex.store(h, r, out)
	}
}

// SwiGLUBackward computes the gradients of SwiGLU's inputs from dh. dgate and dup may share memory
// with gate and up.
func SwiGLUBackward(ex *Exec, dgate, dup, dh, gate, up Matrix) {
	for _, m := range [...]Matrix{dgate, dup, gate, up} {
		sameShape(m, dh)
	}
	ex.elementwise(swiGLUBackwardRows, dgate, dup, dh, gate, up)
}

func swiGLUBackwardRows(ex *Exec, m [5]Matrix) {
	dgate, dup, dh, gate, up := m[0], m[1], m[2], m[3], m[4]
	if allBF16(m[:]...) {
		for r := range dh.Rows {
			vec.SwiGLUBackwardBF16(dgate.bf16Row(r), dup.bf16Row(r), dh.bf16Row(r), gate.bf16Row(r), up.bf16Row(r))
		}
		return
	}
	for r := range dh.Rows {
		g, u := ex.load(0, gate, r), ex.load(1, up, r)
		dg, du := ex.target(0, dgate, r), ex.target(1, dup, r)
		vec.SwiGLUBackward(dg, du, ex.load(2, dh, r), g, u)
		ex.store(dgate, r, dg)
		ex.store(dup, r, du)
	}
}

func allBF16(ms ...Matrix) bool {
	for _, m := range ms {
		if m.dtype != BF16 {
			return false
		}
	}
	return true
}

func sameShape(a, b Matrix) {
	if a.Rows != b.Rows || a.Cols != b.Cols {
		panic(fmt.Sprintf("tensor: shapes [%d, %d] and [%d, %d] differ", a.Rows, a.Cols, b.Rows, b.Cols))
	}
	a.checkRows()
	b.checkRows()
}

// SumBlocks sets row r of dst to the FP32 sum over i < blocks of columns [i·stride, i·stride +
// dst.Cols) in row r of x. It computes the gradient of a value that all heads share. dst and x have
// one element type.
func SumBlocks(ex *Exec, dst, x Matrix, blocks, stride int) {
	if dst.Rows != x.Rows {
		panic(fmt.Sprintf("tensor: blocks of %d rows summed into %d rows", x.Rows, dst.Rows))
	}
	if dst.dtype != x.dtype {
		panic(fmt.Sprintf("tensor: blocks of %v summed into %v", x.dtype, dst.dtype))
	}
	if last := (blocks - 1) * stride; blocks > 0 {
		x = x.ColSlice(0, last+dst.Cols) // panics if the last block is not inside
	}
	dst.checkRows()
	x.checkRows()
	job := blockSum{dst: dst, x: x, blocks: blocks, stride: stride}
	forRows(ex, dst.Rows, dst.Rows*dst.Cols*blocks, job, sumBlocksRows)
}

// blockSum holds the arguments of SumBlocks.
type blockSum struct {
	dst, x         Matrix
	blocks, stride int
}

func sumBlocksRows(_ *Exec, s blockSum, lo, hi int) {
	for r := lo; r < hi; r++ {
		if s.dst.dtype == BF16 {
			vec.SumBlocksBF16(s.dst.bf16Row(r), s.x.bf16Row(r), s.blocks, s.stride)
		} else {
			vec.SumBlocks(s.dst.f32Row(r), s.x.f32Row(r), s.blocks, s.stride)
		}
	}
}

// Sigmoid sets x to 1/(1 + exp(-x)). x is FP32.
func Sigmoid(ex *Exec, x Matrix) {
	x.checkFP32Rows()
	ex.elementwise(sigmoidRows, x)
}

func sigmoidRows(_ *Exec, m [5]Matrix) {
	for r := range m[0].Rows {
		row := m[0].f32Row(r)
		vec.Sigmoid(row, row)
	}
}

// Softmax replaces each row of an FP32 x by its softmax.
func Softmax(ex *Exec, x Matrix) {
	x.checkFP32Rows()
	ex.rowwise(softmaxRows, x)
}

func softmaxRows(_ *Exec, m [5]Matrix) {
	for r := range m[0].Rows {
		row := m[0].f32Row(r)
		sum := vec.ExpSum(row, 1, row, vec.Max(row))
		vec.Scale(row, 1/sum, row)
	}
}
