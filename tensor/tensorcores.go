package tensor

// Products as the tensor cores of a GPU add them.

import (
	"fmt"
	"math/bits"

	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
	"spmoe/tensor/tensorcore"
)

// CoreOperand is an operand of a product on tensor cores: [rows, K], FP32 or BF16, of any layout.
type CoreOperand struct {
	Matrix
	Least  int                    // exponent of the smallest normal number of the elements' format
	Scales tensorcore.BlockScales // see there
}

// BF16Operand returns a BF16 matrix [rows, K] as an operand.
func BF16Operand(m Matrix) CoreOperand {
	if m.dtype != BF16 {
		panic(fmt.Sprintf("tensor: an operand of %v on tensor cores, want bf16", m.dtype))
	}
	return CoreOperand{Matrix: m, Least: -126}
}

// RowSlice returns rows [lo, hi), which share memory.
func (o CoreOperand) RowSlice(lo, hi int) CoreOperand {
	o.Matrix = o.Matrix.RowSlice(lo, hi)
	o.Scales.First += lo
	return o
}

func (o CoreOperand) source() tensorcore.Source {
	return tensorcore.Source{Values: o.data, BF16: o.dtype == BF16, Rows: o.Rows, K: o.Cols, RowStride: o.rowStride, ColStride: o.colStride, Least: o.Least, Scales: o.Scales}
}

// CoreSum says what becomes of the sums of a product on tensor cores.
type CoreSum struct {
	Plan tensorcore.Plan
	// Span is the number of elements along K that are summed as if they were alone. The sums of
	// spans are added in FP32, as in Wgrad. 0: all.
	Span       int
	Alpha      float32 // multiplies each of these sums, rounded; 0 stands for 1
	Accumulate bool    // add the total to c, in FP32
	// Continue begins the sum with c, which is FP32, instead of zero. There are no spans and no
	// Alpha then.
	Continue bool
}

// CoreMatMul computes c = a·bᵀ, bit by bit as the plan's tensor cores do.
//
// a: [M, K], b: [N, K], c: [M, N] FP32, or BF16 rounded once from FP32. A span consists of whole
// runs of scales, or covers all of K.
func CoreMatMul(ex *Exec, c Matrix, a, b CoreOperand, s CoreSum) {
	defer ex.ProfilingProduct(productFamily(a.Matrix, false, profile.Forward), c.Rows, c.Cols, a.Cols, nil).End()
	if a.Cols != b.Cols || c.Rows != a.Rows || c.Cols != b.Rows || (s.Accumulate || s.Continue) && c.dtype != FP32 {
		panic(fmt.Sprintf("tensor: product of [%d, %d] and [%d, %d]ᵀ into [%d, %d] %v", a.Rows, a.Cols, b.Rows, b.Cols, c.Rows, c.Cols, c.dtype))
	}
	c.checkRows()
	if s.Span == 0 || s.Span > a.Cols {
		s.Span = a.Cols
	}
	job := coreJob{CoreSum: s, c: c, a: a, b: b, cols: coreCols}
	for job.cells() < 2*ex.threads(coreOps*flops(c, a.Matrix)) && job.cols > coreCols/8 {
		job.cols /= 2
	}
	Parallel(ex, job.cells(), coreOps*flops(c, a.Matrix), job, coreCells)
	if ex.OnCores != nil {
		ex.OnCores(c, a, b, s)
	}
}

// coreOps is about the cost of an operation on tensor cores, in operations of an FP32 product.
const coreOps = 6

// coreRows and coreCols are the size of the part of c that is computed at a time.
const coreRows, coreCols = 512, 512

// coreJob holds the arguments of coreCells.
type coreJob struct {
	CoreSum
	c    Matrix
	a, b CoreOperand
	cols int // of a cell
}

func (j *coreJob) cells() int { return ceilDiv(j.c.Rows, coreRows) * ceilDiv(j.c.Cols, j.cols) }

// coreCells computes cells [lo, hi) of c.
func coreCells(ex *Exec, j coreJob, lo, hi int) {
	memory := ex.New(UINT8, tensorcore.RoomBytes())
	sums := newCoreSums(ex, j)
	if ex.Dry() {
		return
	}
	room := tensorcore.NewRoom(memory.Bytes())
	across := ceilDiv(j.c.Cols, j.cols)
	for i := lo; i < hi; i++ {
		row, col := i/across*coreRows, i%across*j.cols
		sums.compute(ex, &room, row, min(row+coreRows, j.c.Rows), col, min(col+j.cols, j.c.Cols))
	}
}

// coreSums adds up the sums of the spans of a cell as a balanced binary tree.
type coreSums struct {
	coreJob
	slots Tensor // FP32 [slots, elements of a cell]: pending sums. None has more leaves than the previous one
	open  int    // pending sums
}

func newCoreSums(ex *Exec, j coreJob) coreSums {
	spans := ceilDiv(j.a.Cols, max(j.Span, 1))
	return coreSums{coreJob: j, slots: ex.New(FP32, bits.Len(uint(spans))+1, min(coreRows, j.c.Rows)*min(j.cols, j.c.Cols))}
}

// compute computes rows [row, endRow) and columns [col, endCol) of c.
func (s *coreSums) compute(ex *Exec, room *tensorcore.Room, row, endRow, col, endCol int) {
	rows, cols := endRow-row, endCol-col
	slot := func(i int) Tensor { return s.slots.Index(i).Slice(0, rows*cols) }
	s.open = 0
	for k, count := 0, 1; ; k, count = k+s.Span, count+1 {
		end := min(k+s.Span, s.a.Cols)
		job := tensorcore.Job{Plan: s.Plan, A: s.a.span(k, end).source(), B: s.b.span(k, end).source(), Continue: s.Continue}
		sum := slot(s.open)
		if s.Continue {
			Convert(ex, sum.Reshape(rows, cols).Mat(), s.c.RowSlice(row, endRow).ColSlice(col, endCol))
		}
		job.Multiply(room, sum.F32(), cols, row, rows, col, cols)
		if s.Alpha != 0 {
			vec.Scale(sum.F32(), s.Alpha, sum.F32())
		}
		s.open++
		for merge := count; merge%2 == 0; merge /= 2 {
			s.merge(slot)
		}
		if end == s.a.Cols {
			break
		}
	}
	for s.open > 1 {
		s.merge(slot)
	}
	to, from := s.c.RowSlice(row, endRow).ColSlice(col, endCol), slot(0).Reshape(rows, cols).Mat()
	if s.Accumulate {
		Add(ex, to, to, from)
	} else {
		Convert(ex, to, from)
	}
}

// merge adds the last pending sum to the one before.
func (s *coreSums) merge(slot func(int) Tensor) {
	s.open--
	to := slot(s.open - 1).F32()
	vec.Add(to, to, slot(s.open).F32())
}

// span returns elements [k, end) of all rows. k is the first of a run of scales.
func (o CoreOperand) span(k, end int) CoreOperand {
	o.Matrix = o.Matrix.ColSlice(k, end)
	o.Scales = o.Scales.From(k)
	return o
}
