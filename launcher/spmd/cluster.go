package spmd

// A rank that mpirun or srun has started, on one of several hosts.

import (
	"errors"
	"fmt"

	"spmoe/collective"
	"spmoe/collective/mpi"
)

// Cluster is this process as one rank of a job that another program has started.
type Cluster struct {
	Heap int64 // bytes of shared memory per rank of this host; to be set before Run

	process *mpi.Process
	by      string
	limits  collective.Limits
	agreed  bool // the processes have agreed that all of them can run
}

// The ballots of processes before they run, or when they end without running.
const (
	joins byte = iota
	endsWell
	endsBadly
)

// JoinCluster returns the role of this process if mpirun or srun has started it, and nil otherwise.
func JoinCluster() (*Cluster, error) {
	launched, ok, err := mpi.Environment()
	if err != nil || !ok {
		return nil, err
	}
	p, err := mpi.Start(launched)
	if err != nil {
		return nil, fmt.Errorf("%s has started this process: %w", launched.By, err)
	}
	return &Cluster{process: p, by: launched.By}, nil
}

// By names the program that has started the ranks.
func (c *Cluster) By() string { return c.by }

// Number implements [Rank].
func (c *Cluster) Number() int { return c.process.Rank }

// SetLimits implements [Rank].
func (c *Cluster) SetLimits(l collective.Limits) { c.limits = l }

// AwaitRank implements [Rank].
func (c *Cluster) AwaitRank() error { return nil }

// Ranks implements [World].
func (c *Cluster) Ranks() int { return c.process.Ranks }

// Cores implements [World].
func (c *Cluster) Cores() int { return c.process.Cores }

// Here implements [World].
func (c *Cluster) Here() int { return 1 }

// Leads implements [World].
func (c *Cluster) Leads() bool { return c.process.Rank == 0 }

// Late implements [World].
func (c *Cluster) Late() bool { return false }

// RanksHere returns the number of ranks on this host.
func (c *Cluster) RanksHere() int { return c.process.Placement.Part(c.process.Host).Ranks }

// LeadsHost reports whether this is the first rank of its host.
func (c *Cluster) LeadsHost() bool {
	return c.process.Rank == c.process.Placement.First[c.process.Host]
}

// Host returns the name of this host.
func (c *Cluster) Host() string { return c.process.Placement.Names[c.process.Host] }

// Describe lists the hosts and their ranks.
func (c *Cluster) Describe() string {
	p := c.process.Placement
	text := fmt.Sprintf("%d ranks of %s on %d cores", p.Ranks, c.by, c.process.Cores)
	for h, name := range p.Names {
		part := p.Part(h)
		text += fmt.Sprintf("; host %s: rank %d", name, part.First)
		if part.Ranks > 1 {
			text += fmt.Sprintf(" to %d", part.First+part.Ranks-1)
		}
	}
	return text
}

// errNotStarted is the error of a rank that was ready when others were not. The others have
// reported why.
var errNotStarted = errors.New("other ranks could not start: see their messages")

// Run implements [World].
func (c *Cluster) Run(body func(c *collective.Comm) error) error {
	if !c.agree(joins) {
		return errNotStarted
	}
	h, err := c.process.ShareHeap(collective.ControlBytes(c.Ranks()), c.Heap)
	if err != nil {
		return fmt.Errorf("host %s: %w", c.Host(), err)
	}
	w, err := collective.JoinHosts(h, c.process.Rank, c.process.Placement, c.process.Network)
	if err != nil {
		return err
	}
	w.SetLimits(c.limits)
	return w.Run(recovered(body))
}

// agree reports whether all processes cast the same ballot.
func (c *Cluster) agree(ballot byte) bool {
	c.agreed = true
	for _, b := range c.process.Vote(ballot) {
		if b != ballot {
			return false
		}
	}
	return true
}

// Tells reports whether this process should print the error that it ends with. If all ranks have
// the same error, one prints it. If another rank has failed, one rank per host does.
func (c *Cluster) Tells(err error) bool {
	if failed := (*collective.RankError)(nil); errors.As(err, &failed) {
		return failed.Rank == c.Number() || c.LeadsHost()
	}
	if errors.Is(err, errNotStarted) {
		return false
	}
	if !c.agreed {
		ballot := endsWell
		if err != nil {
			ballot = endsBadly
		}
		return !c.agree(ballot) || c.Leads()
	}
	return true
}

// Leave ends this process's part with an exit code. Unless all ranks end with this code, it makes
// the launcher end the other ranks.
func (c *Cluster) Leave(code int, all bool) {
	if !all {
		c.process.Abort(code)
	}
	c.process.Finalize()
}
