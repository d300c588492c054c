package tensor

// Row kernels over matrices, on the threads of a rank.

// rowWork is the number of a product's operations that take about as long as one element of a row
// kernel.
const rowWork = 32

// rowParts is Parallel for the elements of n rows or runs; without an Exec the caller does all.
func rowParts[A any](ex *Exec, n, elements int, arg A, body func(ex *Exec, arg A, lo, hi int)) {
	if ex == nil {
		body(nil, arg, 0, n)
		return
	}
	Parallel(ex, n, elements*rowWork, arg, body)
}

// A run is elements that stay together where any cut would do: whole cache lines, whole vectors.
const runLen = 1024

// runs is the number of runs in n elements.
func runs(n int) int { return (n + runLen - 1) / runLen }

// ofRuns returns the elements of runs [lo, hi).
func ofRuns[E any](x []E, lo, hi int) []E {
	return x[min(lo*runLen, len(x)):min(hi*runLen, len(x))]
}

// rowwise is a kernel over matrices of one shape, whose rows do not depend on each other.
type rowwise struct {
	m      [5]Matrix
	kernel func(ex *Exec, m [5]Matrix)
	flat   bool // the matrices are single rows, cut into runs
}

// elementwise runs a kernel whose elements do not even depend on others of their row.
func (ex *Exec) elementwise(kernel func(ex *Exec, m [5]Matrix), ms ...Matrix) {
	job := rowwise{kernel: kernel, flat: true}
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
	rowParts(ex, n, ms[0].Rows*ms[0].Cols, job, rowwisePart)
}

// rowwise runs a kernel on the rows of matrices.
func (ex *Exec) rowwise(kernel func(ex *Exec, m [5]Matrix), ms ...Matrix) {
	job := rowwise{kernel: kernel}
	copy(job.m[:], ms)
	rowParts(ex, ms[0].Rows, ms[0].Rows*ms[0].Cols, job, rowwisePart)
}

// rowwisePart does rows, or runs, [lo, hi).
func rowwisePart(ex *Exec, job rowwise, lo, hi int) {
	for i, m := range job.m {
		switch {
		case m.Rows == 0:
		case job.flat:
			job.m[i] = m.ColSlice(min(lo*runLen, m.Cols), min(hi*runLen, m.Cols))
		default:
			job.m[i] = m.RowSlice(lo, hi)
		}
	}
	job.kernel(ex, job.m)
}
