// Package spmd starts the ranks of a job: one program, run by every rank on its own data.
//
// Ranks are goroutines of one process ([Goroutines]), or processes. A launcher starts the program
// again for each rank ([Processes]), and each process calls [Joined] to learn its rank. Under
// mpirun or srun, [JoinCluster] does the same.
package spmd

import (
	"context"
	"errors"
	"runtime"
	"syscall"

	"spmoe/collective"
)

// Interruption is the cause of a context that a signal has ended.
type Interruption struct{ Signal syscall.Signal }

// Error implements error.
func (i Interruption) Error() string { return "stopped by signal: " + i.Signal.String() }

// SignalOf returns the signal that has ended a context. It is SIGTERM if something else has.
func SignalOf(ctx context.Context) syscall.Signal {
	if i := (Interruption{}); errors.As(context.Cause(ctx), &i) {
		return i.Signal
	}
	return syscall.SIGTERM
}

// World runs the ranks of a job that belong to this process.
type World interface {
	// Ranks returns the total number of ranks.
	Ranks() int

	// Cores returns the number of processors that all ranks together may use.
	Cores() int

	// Here returns the number of ranks that are goroutines of this process.
	Here() int

	// Leads reports whether rank 0 belongs to this process.
	Leads() bool

	// Late reports whether this process replaces one that has failed, in a job that is already
	// running.
	Late() bool
	// Run runs body on the ranks of this process and waits for them. A rank that returns an error
	// or panics ends the job: the other ranks get an error that names it from their next
	// collective. Run returns the first failure, with its rank.
	Run(body func(c *collective.Comm) error) error
}

// Rank is this process as one rank of a job of processes.
type Rank interface {
	World

	// Number returns the rank, -1 in a spare that was not called yet.
	Number() int

	// AwaitRank returns when this process has a rank: a spare waits until a rank fails.
	AwaitRank() error

	// SetLimits sets how long this rank waits for the others.
	SetLimits(l collective.Limits)
}

// Goroutines is a World of N ranks, all of them goroutines of this process.
type Goroutines struct {
	N      int
	Limits collective.Limits
}

// Ranks implements [World].
func (g Goroutines) Ranks() int { return g.N }

// Cores implements [World].
func (g Goroutines) Cores() int { return runtime.GOMAXPROCS(0) }

// Here implements [World].
func (g Goroutines) Here() int { return g.N }

// Leads implements [World].
func (g Goroutines) Leads() bool { return true }

// Late implements [World].
func (g Goroutines) Late() bool { return false }

// Run implements [World].
func (g Goroutines) Run(body func(c *collective.Comm) error) error {
	w := collective.NewWorld(g.N)
	w.SetLimits(g.Limits)
	return w.Run(body)
}
