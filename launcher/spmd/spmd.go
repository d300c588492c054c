// Package spmd starts the ranks of a job: one program, run by every rank on its own data.
//
// Ranks are goroutines of one process ([Goroutines]), or processes: a launcher starts the program
// once more for every rank ([Processes]), and each of these finds with [Joined] which rank it is.
// Where mpirun or srun has started it, [JoinCluster] does.
package spmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"spmoe/collective"
)

// World runs the ranks of a job, as far as they are of this process.
type World interface {
	// Ranks is the number of ranks in all.
	Ranks() int

	// Cores is the number of processors that all ranks together may use.
	Cores() int

	// Here is how many of the ranks are goroutines of this process.
	Here() int

	// Leads says whether rank 0 is of this process.
	Leads() bool

	// Late says whether this process takes the place of one that has failed: the job has begun
	// without it.
	Late() bool
	// Run runs body on the ranks of this process and waits for them. A rank that returns an error
	// or panics ends the job: the others get an error that names it from their next collective. Run
	// returns the first failure, with its rank.
	Run(body func(c *collective.Comm) error) error
}

// Rank is this process as one rank of a world of processes.
type Rank interface {
	World

	// Number is the rank, -1 in a spare that has not been called yet.
	Number() int

	// AwaitRank returns when this process has a rank: a spare waits until one fails.
	AwaitRank() error

	// SetLimits says how long this rank puts up with the others.
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
	return w.Run(recovered(body))
}

// recovered returns body with its panics as errors.
func recovered(body func(c *collective.Comm) error) func(c *collective.Comm) error {
	return func(c *collective.Comm) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		return body(c)
	}
}
