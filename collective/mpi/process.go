package mpi

// This process among the others.

import (
	"spmoe/collective"
)

// Process is this process as a rank. Ranks are numbered host by host, in the order of the hosts' first ranks: with a launcher that deals
// ranks out to hosts in turns, other numbers than the launcher's.
type Process struct {
	Rank, Ranks int
	Host        int // of Placement
	Placement   *collective.Placement
	Network     collective.Network // nil if there is one host
	Cores       int                // that all ranks together may use
}

// Vote tells all processes a byte, and returns what each has told, by rank.
func (p *Process) Vote(ballot byte) []byte {
	all := make([]byte, p.Ranks)
	for r, b := range p.gather(everywhere, []byte{ballot}) {
		all[r] = b[0]
	}
	return all
}

// within is which processes take part in a call of MPI.
type within bool

const (
	everywhere within = true
	onHost     within = false
)
