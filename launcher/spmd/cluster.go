package spmd

// A rank that mpirun or srun has started, on one of several hosts.

import (
	"errors"
	"fmt"

	"spmoe/collective"
	"spmoe/collective/mpi"
)

// Cluster is this process as one rank of a world of processes that another launcher has started.
type Cluster struct {
	Heap int64 // bytes of shared memory for each rank of this host; to be set before Run

	process *mpi.Process
	by      string
	limits  collective.Limits
	agreed  bool // the processes have told each other whether they can run
}

// What processes tell each other before they run, or when they end without.
const (
	joins byte = iota
	endsWell
	endsBadly
)

// JoinCluster returns what this process is among those that another launcher has started, nil if
// none has.
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

// By names the launcher.
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

// RanksHere is the number of ranks on this host.
func (c *Cluster) RanksHere() int { return c.process.Placement.Part(c.process.Host).Ranks }

// LeadsHost says whether this is the first rank of its host.
func (c *Cluster) LeadsHost() bool {
	return c.process.Rank == c.process.Placement.First[c.process.Host]
}

// Host names this host.
func (c *Cluster) Host() string { return c.process.Placement.Names[c.process.Host] }

// Describe says who is where.
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

// errNotStarted is the error of a rank that was ready when others were not, who have said why.
var errNotStarted = errors.New("other ranks could not start: see what they have said")

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

// agree says whether all processes have told the same.
func (c *Cluster) agree(ballot byte) bool {
	c.agreed = true
	for _, b := range c.process.Vote(ballot) {
		if b != ballot {
			return false
		}
	}
	return true
}

// Tells says whether this process is to tell of the error that it ends with, if there is one: of
// what has befallen all ranks before they ran one tells, of another rank's failure one on each
// host.
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

// Leave ends this process's part with an exit code. Where it is not one that all ranks end with,
// the launcher is made to end the others.
func (c *Cluster) Leave(code int, all bool) {
	if !all {
		c.process.Abort(code)
	}
	c.process.Finalize()
}
