package ep

// Single rows of [rows, H] tensors: copied unchanged, or computed with in FP32.

import "spmoe/tensor"

// rowBytes returns the size of a row of t.
func rowBytes(t tensor.Tensor) int { return t.Dim(1) * t.DType().Size() }

// rowOf returns the memory of row i of t.
func rowOf(t tensor.Tensor, i int) []byte {
	n := rowBytes(t)
	return t.Bytes()[i*n:][:n]
}

// copyRow copies row j of src to row i of dst, which has the same type.
func copyRow(dst tensor.Tensor, i int, src tensor.Tensor, j int) {
	copy(rowOf(dst, i), rowOf(src, j))
}

// load returns row i of t: in place for FP32, otherwise widened into scratch, FP32 [1, H].
func load(scratch, t tensor.Tensor, i int) []float32 {
	n := t.Dim(1)
	if t.DType() == tensor.FP32 {
		return t.F32()[i*n:][:n]
	}
	tensor.Widen(scratch.F32(), t.BF16()[i*n:][:n])
	return scratch.F32()
}

// store sets row i of t to row, FP32 [1, H], rounded to t's type.
func store(t tensor.Tensor, i int, row tensor.Tensor) {
	n := t.Dim(1)
	if t.DType() == tensor.FP32 {
		copy(t.F32()[i*n:][:n], row.F32())
		return
	}
	tensor.Round(t.BF16()[i*n:][:n], row.F32())
}
