//go:build linux

package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lines returns the lines of a text in order, as those of several tasks come in any, without what
// srun itself says: that the step before is still ending, for instance.
func lines(text string) []string {
	return slices.DeleteFunc(slices.Sorted(strings.Lines(text)), func(line string) bool { return strings.HasPrefix(line, "srun: ") })
}

// TestSteps: the batch script is no task, though it has SLURM_PROCID; what srun starts are tasks,
// which the variables of the step tell.
func TestSteps(t *testing.T) {
	c := Start(t, 4)
	got, code := c.Run(t, `#!/bin/sh
echo "batch: $SLURM_PROCID of $SLURM_NTASKS, step '$SLURM_STEP_ID', '$SLURM_STEP_NUM_TASKS' tasks"
srun sh -c 'echo "task: $SLURM_PROCID of $SLURM_STEP_NUM_TASKS, local $SLURM_LOCALID of $SLURM_STEP_TASKS_PER_NODE, node $SLURM_NODEID of $SLURM_STEP_NUM_NODES"'
srun -n 2 sh -c 'echo "two: $SLURM_PROCID of $SLURM_STEP_NUM_TASKS in step $SLURM_STEP_ID"'
exit 7
`, "--ntasks=4")
	want := `batch: 0 of 4, step '', '' tasks
task: 0 of 4, local 0 of 4, node 0 of 1
task: 1 of 4, local 1 of 4, node 0 of 1
task: 2 of 4, local 2 of 4, node 0 of 1
task: 3 of 4, local 3 of 4, node 0 of 1
two: 0 of 2 in step 1
two: 1 of 2 in step 1
`
	if strings.Join(lines(got), "") != want || code != 7 {
		t.Errorf("the job ends with %d and prints\n%s, not 7 and\n%s", code, got, want)
	}
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
		Missing(t, "%s is not installed (Debian: libopenmpi-dev, libmpich-dev)", compiler)
	}
	if said, err := exec.Command(compiler, "-o", out, "testdata/hello.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, said)
	}
}

// TestNothingIsLeft: daemons, jobs, and what jobs have put into the background end with the test.
func TestNothingIsLeft(t *testing.T) {
	var dir string
	t.Run("cluster", func(t *testing.T) {
		c := Start(t, 2)
		dir = c.dir
		if out, err := c.Command("sbatch", "--output=/dev/null", "--wrap=sleep 1000").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if out, code := c.Run(t, "#!/bin/sh\nsetsid -f sleep 1000 >/dev/null 2>&1\n"); code != 0 {
			t.Fatalf("the job ends with %d: %s", code, out)
		}
		if got := commands(t, dir); !slices.Contains(got, "sleep") || !slices.Contains(got, "slurmd") || !slices.Contains(got, "munged") {
			t.Errorf("of the cluster there are %q", got)
		}
	})
	if dir == "" {
		t.Skip("no cluster")
	}
	if got := commands(t, dir); len(got) > 0 {
		t.Errorf("after the test there are still %q", got)
	}
}

// commands returns the names of the processes that have the folder of a cluster in their
// environment.
func commands(t *testing.T, dir string) (names []string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		environ, _ := os.ReadFile(filepath.Join(f, "environ")) // it may have ended meanwhile
		name, _ := os.ReadFile(filepath.Join(f, "comm"))
		if strings.Contains(string(environ), "SLURM_CONF="+dir) {
			names = append(names, strings.TrimSpace(string(name)))
		}
	}
	return names
}

// TestMissing: what this machine lacks is a failure where everything must be there.
func TestMissing(t *testing.T) {
	for need, want := range map[string]string{"": "skipped: no x", "1": "failed: no x (and SPMOE_NEED_HOSTS=1)"} {
		t.Setenv("SPMOE_NEED_HOSTS", need)
		r := &recorder{TB: t}
		func() {
			defer func() { recover() }()
			Missing(r, "no %s", "x")
		}()
		if r.got != want {
			t.Errorf("with %q: %q", need, r.got)
		}
	}
}

// recorder keeps how a test would have ended.
type recorder struct {
	testing.TB
	got string
}

func (r *recorder) Skipf(format string, args ...any)  { r.end("skipped: "+format, args) }
func (r *recorder) Fatalf(format string, args ...any) { r.end("failed: "+format, args) }
func (r *recorder) end(format string, args []any) {
	r.got = fmt.Sprintf(format, args...)
	panic("ended")
}
