package mpi

// This process among the others.

import (
	"spmoe/collective"
)

// Process is this process as a rank. Ranks are numbered host by host, in the order of the hosts'
// first ranks: with a launcher that deals ranks out to hosts in turns, other numbers than the
// launcher's.
type Process struct {
	Rank, Ranks int
	Host        int // of Placement
	Placement   *collective.Placement
	Network     collective.Network // nil if there is one host
	Cores       int                // that all ranks together may use
}
