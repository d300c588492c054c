package spmd

// A rank that is a process of its own.

import (
	"fmt"
	"os"

	"spmoe/collective"
	"spmoe/collective/heap"
)

// What a launcher tells the process of a rank: its number, the launcher's process, and the processors of all ranks. The heap is its
// file 3.
const (
	rankVariable = "SPMOE_RANK"
	rankFormat   = "%d of launcher %d on %d cores"
	heapFile     = 3
)

// Member is this process as one rank of a world of processes.
type Member struct {
	Rank  int
	cores int
	heap  *heap.Heap
	world *collective.World
}

// Joined returns what this process is in a world of processes, nil if no launcher has started it as a rank.
func Joined() (*Member, error) {
	text, ok := os.LookupEnv(rankVariable)
	if !ok {
		return nil, nil
	}
	m := &Member{}
	var launcher int
	if _, err := fmt.Sscanf(text, rankFormat, &m.Rank, &launcher, &m.cores); err != nil {
		return nil, fmt.Errorf("%s is %q: it is set by launcher --ranks process alone: unset it", rankVariable, text)
	}
	if os.Getppid() != launcher {
		return nil, fmt.Errorf("the launcher of rank %d, process %d, has gone", m.Rank, launcher)
	}
	var err error
	if m.heap, err = heap.Open(os.NewFile(heapFile, "heap")); err != nil {
		return nil, err
	}
	m.world, err = collective.Join(m.heap, m.Rank)
	return m, err
}

// SetLimits says how long this rank puts up with the others.
func (m *Member) SetLimits(l collective.Limits) { m.world.SetLimits(l) }

// Ranks implements [World].
func (m *Member) Ranks() int { return m.heap.Ranks() }

// Cores implements [World].
func (m *Member) Cores() int { return m.cores }

// Leads implements [World].
func (m *Member) Leads() bool { return m.Rank == 0 }

// Run implements [World].
func (m *Member) Run(body func(c *collective.Comm) error) error { return run(m.world, body) }

// Abort declares that this rank has failed outside Run.
func (m *Member) Abort(err error) { m.world.Abort(m.Rank, err) }
