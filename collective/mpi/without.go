//go:build !mpi || !linux

package mpi

import "spmoe/collective/heap"

// Start fails: see [ErrNotBuilt].
func Start(l Launched) (*Process, error) { return nil, ErrNotBuilt }

func (p *Process) gather(within, []byte) [][]byte { panic(ErrNotBuilt) }

// ShareHeap fails: see [ErrNotBuilt].
func (p *Process) ShareHeap(control int, region int64) (*heap.Heap, error) { return nil, ErrNotBuilt }

// Abort ends the job.
func (p *Process) Abort(code int) {}

// Finalize leaves MPI.
func (p *Process) Finalize() {}
