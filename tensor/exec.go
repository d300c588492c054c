package tensor

import (
	"sync/atomic"

	"spmoe/tensor/alloc"
	"spmoe/tensor/internal/gemm"
	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
)

// Exec is the execution context of one rank. It holds the arena for the activations of a step, the
// scratch memory of the kernels, and access to the threads. Only one goroutine may use it at a
// time.
type Exec struct {
	embedded [][]Embedded // the argument of EmbedBackward
	Arena
	gemm gemm.Scratch
	// packing buffers of the member for which this Exec helps others, or of its twin; nil: its own,
	// in gemm
	shared *gemm.Scratch
	rows   [4][]float32 // FP32 copies of BF16 rows
	sums   []float64    // partial sums of a kernel
	done   keyBlockProgress
	queue  *workQueue // nil: one thread
	team   *Team      // closed with the Exec; nil: none

	dry   bool         // see NewDryExec
	room  *PackingSize // of a dry run
	times *int         // see Repeat

	attention attentionCall      // of the kernel that is running
	retained  [3]retainedOperand // of its parts on this thread

	// Progress is incremented by every kernel. A watchdog reads it to detect a rank that hangs. It
	// may be nil.
	Progress *atomic.Uint64

	// Profile measures where the time of the goroutine that owns the Exec goes. It may be nil.
	Profile *profile.Timer

	// OnCores is called after each product on tensor cores, with its arguments. It may be nil.
	OnCores func(c Matrix, a, b CoreOperand, s CoreSum)
}

// NewExec returns an Exec with one thread. Its arena grows on first use.
func NewExec() *Exec { return &Exec{} }

// NewParallelExec returns an Exec whose kernels use up to threads threads. Results do not depend on
// their number. Close the Exec after use.
func NewParallelExec(threads int) *Exec {
	t := NewTeam(1, threads)
	ex := t.Join()
	ex.team = t
	return ex
}

// Twin returns an Exec for a second task of the rank, which runs only while that of ex waits
// between two kernels. It has an arena of its own and shares the rest.
func (ex *Exec) Twin() *Exec {
	return &Exec{
		Arena: *ex.NewArena(ex.First), shared: &ex.gemm,
		queue: ex.queue, Progress: ex.Progress, Profile: ex.Profile,
	}
}

// Close stops the threads of NewParallelExec, or leaves the team. The Exec remains usable with one
// thread.
func (ex *Exec) Close() {
	if ex.queue != nil {
		ex.queue.owned.Store(false)
	}
	if ex.team != nil {
		ex.team.Close()
	}
	ex.queue, ex.team = nil, nil
}

// packing returns the packing buffers of products.
func (ex *Exec) packing() *gemm.Scratch {
	if ex.shared != nil {
		return ex.shared
	}
	return &ex.gemm
}

// scratchRow returns FP32 scratch buffer i with n elements.
func (ex *Exec) scratchRow(i, n int) []float32 {
	if cap(ex.rows[i]) < n {
		ex.rows[i] = alloc.Make[float32](n)
	}
	return ex.rows[i][:n]
}

// scratchSums returns scratch memory for n sums.
func (ex *Exec) scratchSums(n int) []float64 {
	if cap(ex.sums) < n {
		ex.sums = alloc.Make[float64](n)
	}
	return ex.sums[:n]
}

// scratchProgress returns the progress of n key blocks, and none has begun.
func (ex *Exec) scratchProgress(n int) keyBlockProgress {
	if cap(ex.done) < n {
		ex.done = alloc.Make[atomic.Int64](n)
	}
	done := ex.done[:n]
	for i := range done {
		done[i].Store(0)
	}
	return done
}

// load returns row r of m as FP32. This is the row itself if m is FP32, and otherwise a copy in
// scratch buffer i. Two rows in use at the same time need different buffers.
func (ex *Exec) load(i int, m Matrix, r int) []float32 {
	if m.dtype == FP32 {
		return m.f32Row(r)
	}
	row := ex.scratchRow(i, m.Cols)
	vec.Widen(row, m.bf16Row(r))
	return row
}

// target returns the FP32 row in which to compute row r of m. This is the row itself if m is FP32,
// and scratch buffer i if m is BF16. Call store afterwards.
func (ex *Exec) target(i int, m Matrix, r int) []float32 {
	if m.dtype == FP32 {
		return m.f32Row(r)
	}
	return ex.scratchRow(i, m.Cols)
}

// store rounds a row from target into m. An FP32 row is already there.
func (ex *Exec) store(m Matrix, r int, row []float32) {
	if m.dtype == BF16 {
		vec.Round(m.bf16Row(r), row)
	}
}
