//go:build linux

// MPI programs on the hosts of a cluster, started as on a real cluster except that ssh is replaced.

package hosts

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"spmoe/internal/testing/need"
)

//go:embed agent.sh
var agentScript string

// MPI is an implementation of MPI, by its name in Debian.
type MPI string

// The implementations that a test can use at the same time.
const (
	OpenMPI MPI = "openmpi"
	MPICH   MPI = "mpich"
)

// Compiler returns the name of the C compiler wrapper of this MPI.
func (m MPI) Compiler() string { return "mpicc." + string(m) }

// Launcher returns the command that starts programs of this MPI.
func (m MPI) Launcher() string {
	return map[MPI]string{OpenMPI: "mpirun.openmpi", MPICH: "mpiexec.mpich"}[m]
}

// MPIRun returns the command that starts the program as ranksPerHost ranks on each host, the first
// ones on host 0, where the command itself runs. Hosts communicate by TCP over eth0. Env of the
// command is that of the launcher. Open MPI passes only variables that begin with OMPI_ to the
// ranks of other hosts, MPICH passes all; use the program env to set more. When ctx is cancelled
// the command gets SIGTERM, and SIGKILL 10 s later, which it needs if a host is cut off. It skips
// the test, like [New], without that MPI.
func (c *Cluster) MPIRun(ctx context.Context, mpi MPI, ranksPerHost int, program string, args ...string) *exec.Cmd {
	c.t.Helper()
	return c.MPIRunOn(ctx, mpi, slices.Repeat([]int{ranksPerHost}, len(c.Hosts)), program, args...)
}

// MPIRunOn is MPIRun with a number of ranks for each host.
func (c *Cluster) MPIRunOn(ctx context.Context, mpi MPI, ranks []int, program string, args ...string) *exec.Cmd {
	c.t.Helper()
	for _, tool := range []string{mpi.Launcher(), mpi.Compiler()} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Missing(c.t, "there is no %s", tool)
		}
	}
	var slots []string
	n := 0
	for i, h := range c.Hosts {
		slots = append(slots, fmt.Sprintf("%s:%d", h.Name, ranks[i]))
		n += ranks[i]
	}
	flags := map[MPI]func(hosts string) []string{OpenMPI: c.openMPI, MPICH: c.mpich}[mpi](strings.Join(slots, ","))
	flags = append(flags, "-np", strconv.Itoa(n), program)
	cmd := c.Hosts[0].Command(ctx, mpi.Launcher(), append(flags, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

func (c *Cluster) openMPI(hosts string) []string {
	return []string{
		"--allow-run-as-root", "--host", hosts, "--oversubscribe", "--bind-to", "none",
		"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", c.path("agent"),
		"--mca", "orte_tmpdir_base", c.folder, // killed hosts leave files behind
		"--mca", "oob_tcp_if_include", "eth0",
		"--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", "--mca", "btl_tcp_if_include", "eth0",
		"--mca", "osc", "^ucx", // it takes precedence for windows, and fails without InfiniBand
		"--mca", "mpi_yield_when_idle", "1",
	}
}

// Debian's MPICH is built on UCX, which shares memory between processes of one System V namespace,
// that is, of one host. Without shared memory it would connect to a host's own ranks only when they
// end, and wait for one that no longer listens.
func (c *Cluster) mpich(hosts string) []string {
	return []string{
		"-hosts", hosts, "-launcher", "rsh", "-launcher-exec", c.path("agent"), "-iface", "eth0",
		"-genv", "UCX_TLS", "tcp,self,sysv,posix", "-genv", "UCX_NET_DEVICES", "eth0",
	}
}
