//go:build linux

package slurm

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/internal/testing/need"
)

// lines returns the lines of a text in order, as those of several tasks come in any, without what
// srun itself says: that the step before is still ending, for instance.
func lines(text string) []string {
	return slices.DeleteFunc(slices.Sorted(strings.Lines(text)), func(line string) bool { return strings.HasPrefix(line, "srun: ") })
}

// TestMPI: what starts programs of which MPI, and how each process learns its rank.
func TestMPI(t *testing.T) {
	c := Start(t, 4)
	for _, m := range []struct {
		name, compiler, start string
		size                  []string // variables that are 4
		rank                  []string // variables that are the rank
	}{
		{"Open MPI, srun", "mpicc.openmpi", "srun --mpi=pmix", []string{"SLURM_STEP_NUM_TASKS"}, []string{"PMIX_RANK", "SLURM_PROCID", "SLURM_LOCALID"}},
		{"Open MPI, mpirun", "mpicc.openmpi", "mpirun.openmpi --allow-run-as-root --bind-to none", []string{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}, []string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}},
		{"MPICH, srun", "mpicc.mpich", "srun --mpi=pmi2", []string{"PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, []string{"PMI_RANK", "SLURM_PROCID", "SLURM_LOCALID"}},
		{"MPICH, mpiexec", "mpicc.mpich", "mpiexec.mpich", []string{"PMI_SIZE", "MPI_LOCALNRANKS"}, []string{"PMI_RANK", "MPI_LOCALRANKID"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			hello := filepath.Join(t.TempDir(), "hello")
			compile(t, m.compiler, hello)
			got, code := c.Run(t, fmt.Sprintf("#!/bin/sh\n%s %s %s\n", m.start, hello, strings.Join(append(m.size, m.rank...), " ")), "--ntasks=4")
			var want strings.Builder
			for rank := range 4 {
				fmt.Fprintf(&want, "rank %d of 4, sum 6%s%s\n", rank, all(m.size, 4), all(m.rank, rank))
			}
			if strings.Join(lines(got), "") != want.String() || code != 0 {
				t.Errorf("the job ends with %d and prints\n%s, not 0 and\n%s", code, got, &want)
			}
		})
	}
}

func all(names []string, value int) (text string) {
	for _, n := range names {
		text += fmt.Sprintf(" %s=%d", n, value)
	}
	return text
}

func compile(t *testing.T, compiler, out string) {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		need.Missing(t, "%s is not installed (Debian: libopenmpi-dev, libmpich-dev)", compiler)
	}
	if said, err := exec.Command(compiler, "-o", out, "testdata/hello.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, said)
	}
}
