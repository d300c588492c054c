//go:build linux

package hosts

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Both MPIs start their ranks where they should, see as many hosts as there are, and talk over the
// links alone.
func TestMPIRun(t *testing.T) {
	for _, mpi := range []MPI{OpenMPI, MPICH} {
		t.Run(string(mpi), func(t *testing.T) {
			c := New(t, 2)
			program := filepath.Join(t.TempDir(), "where")
			cmd := c.MPIRun(t.Context(), mpi, 2, program)
			if out, err := exec.Command(mpi.Compiler(), "-O1", "-o", program, "testdata/where.c").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := slices.Sorted(strings.Lines(string(out)))
			var want []string
			for rank := range 4 {
				want = append(want, fmt.Sprintf("rank %d of 4 on host%d with 2, 0 wrong\n", rank, rank/2))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q\nwant %q", got, want)
			}
			for _, h := range c.Hosts {
				if sent := h.Sent(); sent < 16e6 || sent > 20e6 {
					t.Errorf("%s sent %d bytes, for 16000000 each way", h.Name, sent)
				}
			}
		})
	}
}
