package mpi

// This process as one of several.

import (
	"time"

	"spmoe/collective"
)

// Process is this process as a rank. Ranks are numbered host by host, in the order of the hosts'
// first ranks. If the launcher assigns ranks to hosts in turns, these numbers differ from the
// launcher's.
type Process struct {
	Rank, Ranks int
	Host        int // index in Placement
	Placement   *collective.Placement
	PIDs        []int              // process number of each rank, on its host
	Network     collective.Network // nil if there is one host
	Cores       int                // of all ranks together
	Limit       time.Duration      // for a process that others wait for when they start and end; 0: none
}
