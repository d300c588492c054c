// Package mpi makes this process one rank of a world whose ranks mpirun, mpiexec or srun has
// started, on one host or many: ranks of a host share a heap, hosts talk over MPI-3.
//
// It needs a C compiler and an MPI, Open MPI 4 or MPICH 4, and is therefore built with the tag mpi
// only:
//
//	CC=mpicc go build -tags mpi -o launcher ./launcher
//
// Without the tag [Start] says so.
package mpi

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Launched is who has started this process as one of several.
type Launched struct {
	By    string // for people: "mpirun of Open MPI"
	Ranks int    // as far as the environment says; 0: it does not
}

// starter is what a launcher sets in the environment: rank and size, or a rank and something else,
// since PMIx servers tell the size.
type starter struct{ by, rank, other, size string }

// The launchers, those first whose word counts where several have left theirs: mpirun inside an
// allocation of Slurm sets both. SLURM_PROCID alone says nothing: it is set in a batch script too,
// which is no task of a step.
var starters = []starter{
	{"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
	{"mpiexec or srun with PMI", "PMI_RANK", "PMI_SIZE", "PMI_SIZE"},
	{"a launcher with PMIx", "PMIX_RANK", "PMIX_NAMESPACE", "SLURM_STEP_NUM_TASKS"},
	{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"},
}

// Environment says who has started this process; ok is false if nobody has, but a person or a
// script. Half of what a launcher sets is an error.
func Environment() (l Launched, ok bool, err error) {
	for _, s := range starters {
		_, rank := os.LookupEnv(s.rank)
		_, other := os.LookupEnv(s.other)
		if s.by == "srun" && !other || !rank && !other {
			continue
		}
		if !rank || !other {
			return l, false, fmt.Errorf("of the variables that %s sets, %s and %s, one is missing: unset the other, or start the program by its launcher", s.by, s.rank, s.other)
		}
		if l, err = s.read(); err != nil {
			return l, false, err
		}
		return l, l.Ranks != 1, nil // of one rank there is nothing to be told: it may start its own
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

// ErrNotBuilt says that this program has no MPI in it.
var ErrNotBuilt = errors.New("this launcher was built without MPI: install Open MPI or MPICH with its headers, and build it with CC=mpicc go build -tags mpi -o launcher ./launcher (or unset the launcher's variables, to run on this host alone)")
