package spmd

// A rank that mpirun or srun has started, on one of several hosts.

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"spmoe/collective"
	"spmoe/collective/mpi"
	"spmoe/launcher/system"
)

// Cluster is this process as one rank of a job that another program has started.
type Cluster struct {
	Heap int64 // bytes of shared memory per rank of this host; to be set before Run

	process *mpi.Process
	by      string
	limits  collective.Limits
	chosen  bool // rank 0 has told the others what it has chosen
	shared  bool // the first rank of this host has told the others where the text is
	text    *os.File
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
func (c *Cluster) SetLimits(l collective.Limits) { c.limits, c.process.Limit = l, l.Wait }

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

// FirstRanks returns the first rank of each host.
func (c *Cluster) FirstRanks() []int { return c.process.Placement.First }

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
	w.ContainPanics()
	return w.Run(body)
}

// choiceBytes is the size of what Choose sends: the longest path of Linux.
const choiceBytes = 4096

// Choose returns rank 0's text on all ranks. Each process calls it at most once. If rank 0 has not
// called it before its first ballot, because it fails, the others get an error.
func (c *Cluster) Choose(text string) (string, error) {
	c.chosen = true
	mine := make([]byte, choiceBytes)
	copy(mine, text)
	if text = string(bytes.TrimRight(c.process.Gather(mine)[0], "\x00")); text == "" {
		return "", errNotStarted
	}
	return text, nil
}

// ShareText returns the path of the text that the first rank of this host has read; it calls this
// with the file. Each process calls it at most once, after Choose. If that rank has not called it
// before its first ballot, because it fails, the others get an error. They wait however long it
// reads; it expects them within the limit.
func (c *Cluster) ShareText(file *os.File) (path string, err error) {
	c.shared, c.text = true, file // which stays open
	if !c.LeadsHost() {
		defer func(limit time.Duration) { c.process.Limit = limit }(c.process.Limit)
		c.process.Limit = 0
	}
	if path = c.process.ShareFile(file); path == "" {
		err = errNotStarted
	}
	return path, err
}

// agree reports whether all processes cast the same ballot.
func (c *Cluster) agree(ballot byte) bool {
	if !c.chosen {
		_, _ = c.Choose("")
	}
	if !c.shared {
		_, _ = c.ShareText(nil)
	}
	c.agreed = true
	for _, b := range c.process.Gather([]byte{ballot}) {
		if b[0] != ballot {
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
	told := c.agreed
	if !c.agreed {
		ballot := endsWell
		if err != nil {
			ballot = endsBadly
		}
		told = !c.agree(ballot) || c.Leads()
	}
	return told && !errors.Is(err, errNotStarted)
}

// Leave ends this process's part with an exit code. Unless all ranks end with this code, it makes
// the launcher end the other ranks.
func (c *Cluster) Leave(code int, all bool) {
	if !all {
		c.process.Abort(code)
	}
	c.process.Finalize()
}

// buildBytes is the size of a build's description: the SHA-256 of the program, then its version.
const buildBytes = sha256.Size + 64

// CompareBuilds compares the programs of all processes. It returns an error if their versions
// differ, because they may compute other bits and speak other protocols. Programs of one revision
// that are not the same file are worth a note: their compilers may differ. If the version does not
// say what was built, because the sources were modified or are unknown, they are an error too.
func (c *Cluster) CompareBuilds(version string) (note string, err error) {
	mine := make([]byte, buildBytes)
	copy(mine, programDigest())
	copy(mine[sha256.Size:], version)
	return compareBuilds(c.process.Gather(mine), c.process.Placement.Describe)
}

// programDigest returns the SHA-256 of this program. It is zero if the program cannot be read.
func programDigest() []byte {
	h := sha256.New()
	file, err := os.Open("/proc/self/exe") // even if another program has its path now
	if err == nil {
		_, err = io.Copy(h, file)
		file.Close()
	}
	if err != nil {
		return make([]byte, sha256.Size)
	}
	return h.Sum(nil)
}

// compareBuilds compares the builds of all ranks.
func compareBuilds(all [][]byte, where func(rank int) string) (note string, err error) {
	for r, build := range all {
		if bytes.Equal(build, all[0]) {
			continue
		}
		versions := [2]string{}
		for i, b := range [][]byte{all[0], build} {
			versions[i] = string(bytes.TrimRight(b[sha256.Size:], "\x00"))
		}
		is := fmt.Sprintf("%s runs launcher %s (SHA-256 %.6x), %s runs %s (%.6x)", where(0), versions[0], all[0], where(r), versions[1], build)
		if versions[0] != versions[1] || !system.NamesSources(versions[0]) {
			return "", fmt.Errorf("the ranks run different programs: %s: install the same launcher on all hosts", is)
		}
		note = fmt.Sprintf("the ranks run different builds of one revision: %s: their last bits may differ", is)
	}
	return note, nil
}
