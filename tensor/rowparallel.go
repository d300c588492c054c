package tensor

// Parallel loops over the rows of matrices.

// rowWork is the number of operations of a matrix product that take about as long as one element of
// a row kernel.
const rowWork = 32

// forRows is Parallel for n rows or runs with the given number of elements in all. With a nil ex
// the caller does all the work.
func forRows[A any](ex *Exec, n, elements int, arg A, body func(ex *Exec, arg A, lo, hi int)) {
	if ex == nil {
		body(nil, arg, 0, n)
		return
	}
	Parallel(ex, n, elements*rowWork, arg, body)
}

// runLen is the number of elements in a run. Elementwise kernels divide their work into runs, which
// are whole cache lines and whole vectors.
const runLen = 1024

// runs returns the number of runs in n elements.
func runs(n int) int { return (n + runLen - 1) / runLen }

// rowParallelJob is a kernel over matrices of one shape. Each row of the result depends on the same
// row of the operands only.
type rowParallelJob struct {
	m      [5]Matrix
	kernel func(ex *Exec, m [5]Matrix)
	flat   bool // each matrix is viewed as a single row, divided into runs
}

// elementwise runs kernel, where each element depends on the same element of the operands only.
func (ex *Exec) elementwise(kernel func(ex *Exec, m [5]Matrix), ms ...Matrix) {
	defer ex.describeRows(ms[0]).End()
	job := rowParallelJob{kernel: kernel, flat: true}
	for _, m := range ms {
		job.flat = job.flat && m.rowStride == m.Cols
	}
	copy(job.m[:], ms)
	n := ms[0].Rows
	if job.flat {
		for i := range ms {
			job.m[i] = job.m[i].flat()
		}
		n = runs(ms[0].Rows * ms[0].Cols)
	}
	forRows(ex, n, ms[0].Rows*ms[0].Cols, job, rowJobPart)
}

// rowwise runs kernel on the rows of matrices.
func (ex *Exec) rowwise(kernel func(ex *Exec, m [5]Matrix), ms ...Matrix) {
	defer ex.describeRows(ms[0]).End()
	job := rowParallelJob{kernel: kernel}
	copy(job.m[:], ms)
	forRows(ex, ms[0].Rows, ms[0].Rows*ms[0].Cols, job, rowJobPart)
}

// flatRuns bounds the row that a kernel sees of a flat job, in runs. Kernels of operands of mixed
// types copy a row to scratch memory, which would otherwise grow with the tensors.
const flatRuns = 16

// rowJobPart computes rows, or runs, [lo, hi).
func rowJobPart(ex *Exec, job rowParallelJob, lo, hi int) {
	step := hi - lo
	if job.flat {
		step = flatRuns
	}
	for ; lo < hi; lo += step {
		part := job.m
		for i, m := range part {
			switch end := min(lo+step, hi); {
			case m.Rows == 0:
			case job.flat:
				part[i] = m.ColSlice(min(lo*runLen, m.Cols), min(end*runLen, m.Cols))
			default:
				part[i] = m.RowSlice(lo, end)
			}
		}
		job.kernel(ex, part)
	}
}
