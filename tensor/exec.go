package tensor

import (
	"sync/atomic"

	"spmoe/tensor/internal/gemm"
	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
)

// Exec is what one rank computes with: the arena of its step's activations, the scratch
// memory of its kernels, and its threads. It belongs to one goroutine at a time.
type Exec struct {
	Arena
	gemm gemm.Scratch
	rows [4][]float32 // FP32 copies of BF16 rows
	sums []float64    // those of the parts of a kernel
	pool *pool        // nil: one thread
	team *Team        // that ends with the Exec; nil: none

	attention attentionCall // under way

	// Progress is raised at every kernel, for whoever watches that the rank goes on; nil: nobody
	// does.
	Progress *atomic.Uint64

	// Profile measures where the time of the goroutine that owns the Exec goes; nil: nothing does.
	Profile *profile.Timer
}

// NewExec returns an Exec of one thread whose arena grows on first use.
func NewExec() *Exec { return &Exec{} }

// NewParallelExec returns an Exec whose kernels use up to this many threads. Results do not
// depend on the number. Close it after use.
func NewParallelExec(threads int) *Exec {
	t := NewTeam(1, threads)
	ex := t.Join()
	ex.team = t
	return ex
}

// Close ends the threads of NewParallelExec, and leaves a team. The Exec computes on with one
// thread.
func (ex *Exec) Close() {
	if ex.pool != nil {
		ex.pool.joined.Store(false)
	}
	if ex.team != nil {
		ex.team.Close()
	}
	ex.pool, ex.team = nil, nil
}

// scratchRow returns FP32 scratch number i with n elements.
func (ex *Exec) scratchRow(i, n int) []float32 {
	if cap(ex.rows[i]) < n {
		ex.rows[i] = make([]float32, n)
	}
	return ex.rows[i][:n]
}

// scratchSums returns scratch for n sums.
func (ex *Exec) scratchSums(n int) []float64 {
	if cap(ex.sums) < n {
		ex.sums = make([]float64, n)
	}
	return ex.sums[:n]
}

// load returns row r of m as FP32: the row itself where m is FP32, otherwise a copy in
// scratch number i. Two rows that are in use together need different scratch numbers.
func (ex *Exec) load(i int, m Matrix, r int) []float32 {
	if m.dtype == FP32 {
		return m.f32Row(r)
	}
	row := ex.scratchRow(i, m.Cols)
	vec.Widen(row, m.bf16Row(r))
	return row
}

// target returns where row r of m is to be computed: in place for FP32, in scratch number i
// for BF16. store finishes the row.
func (ex *Exec) target(i int, m Matrix, r int) []float32 {
	if m.dtype == FP32 {
		return m.f32Row(r)
	}
	return ex.scratchRow(i, m.Cols)
}

// store rounds a row that target returned into m; for FP32 it is already there.
func (ex *Exec) store(m Matrix, r int, row []float32) {
	if m.dtype == BF16 {
		vec.Round(m.bf16Row(r), row)
	}
}
