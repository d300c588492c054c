// Package mpi makes this process one rank of a world whose ranks mpirun, mpiexec or srun has
// started, on one or several hosts. Ranks of a host share a heap, hosts communicate by MPI-3.
//
// It needs a C compiler and an MPI, Open MPI 4 or MPICH 4, so it is built with the tag mpi only:
//
//	CC=mpicc go build -tags mpi -o launcher ./launcher
//
// Without the tag, [Start] returns [ErrNotBuilt].
package mpi

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Launched describes the program that has started this process as one of several.
type Launched struct {
	By    string // for people: "mpirun of Open MPI"
	Ranks int    // from the environment; 0: unknown
}

// starter names the environment variables that a launcher sets: rank and size, or rank and another
// one, because PMIx servers tell the size.
type starter struct{ by, rank, other, size string }

// The launchers in order of precedence, if several have left their variables: mpirun inside a Slurm
// allocation sets both. SLURM_PROCID alone is not enough, because it is also set in a batch script,
// which is not a task of a step.
var starters = []starter{
	{"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
	{"mpiexec or srun with PMI", "PMI_RANK", "PMI_SIZE", "PMI_SIZE"},
	{"a launcher with PMIx", "PMIX_RANK", "PMIX_NAMESPACE", "SLURM_STEP_NUM_TASKS"},
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"},
}

// Environment returns the launcher of this process; ok is false if a person or a script has started
// it. If only some of a launcher's variables are set, it returns an error.
func Environment() (l Launched, ok bool, err error) {
	for _, s := range starters {
		_, rank := os.LookupEnv(s.rank)
		_, other := os.LookupEnv(s.other)
		if s.by == "srun" && !other || !rank && !other {
			continue
		}
		if !rank || !other {
			return l, false, fmt.Errorf("%s sets %s and %s, but one of them is missing: unset the other, or use that launcher", s.by, s.rank, s.other)
		}
		if l, err = s.read(); err != nil {
			return l, false, err
		}
		return l, l.Ranks != 1, nil // a single rank may start ranks of its own
	}
	return l, false, nil
}

func (s starter) read() (l Launched, err error) {
	l.By = s.by
	text, ok := os.LookupEnv(s.size)
	if !ok {
		return l, nil
	}
	if l.Ranks, err = strconv.Atoi(strings.TrimSpace(text)); err != nil || l.Ranks < 1 {
		return l, fmt.Errorf("%s is %q, which %s sets to the number of ranks: unset it", s.size, text, s.by)
	}
	return l, nil
}

// ErrNotBuilt says that this program was built without MPI.
var ErrNotBuilt = errors.New("this launcher was built without MPI: install Open MPI or MPICH with its headers, and build it with CC=mpicc go build -tags mpi -o launcher ./launcher (or unset the launcher's variables, to run on this host alone)")
