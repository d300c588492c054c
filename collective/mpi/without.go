//go:build !mpi || !linux

package mpi

import (
	"os"

	"spmoe/collective/heap"
)

// Start returns [ErrNotBuilt].
func Start(l Launched) (*Process, error) { return nil, ErrNotBuilt }

// Gather does nothing.
func (p *Process) Gather(mine []byte) [][]byte { return nil }

// ShareFile does nothing.
func (p *Process) ShareFile(*os.File) string { return "" }

// ShareHeap returns [ErrNotBuilt].
func (p *Process) ShareHeap(control int, region int64) (*heap.Heap, error) { return nil, ErrNotBuilt }

// Abort ends the job.
func (p *Process) Abort(code int) {}

// Finalize leaves MPI.
func (p *Process) Finalize() {}
