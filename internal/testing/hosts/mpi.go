//go:build linux

// MPI programs on the hosts of a cluster, started as on a real one but for ssh.

package hosts

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

//go:embed agent.sh
var agentScript string

// MPI is an implementation of MPI, by the name that Debian gives it.
type MPI string

// The implementations that a test can use side by side.
const (
	OpenMPI MPI = "openmpi"
	MPICH   MPI = "mpich"
)

// Compiler is the C compiler's wrapper of this MPI.
func (m MPI) Compiler() string { return "mpicc." + string(m) }

// Launcher is the command that starts programs of this MPI.
func (m MPI) Launcher() string {
	return map[MPI]string{OpenMPI: "mpirun.openmpi", MPICH: "mpiexec.mpich"}[m]
}

// MPIRun is the command that starts the program as ranksPerHost ranks on each host, the first ones
// on host 0, where the command itself runs. Hosts talk TCP over eth0. Env of the command is that of
// the launcher: Open MPI hands on to the ranks of other hosts only what begins with OMPI_, MPICH
// everything; the program env gives them more. When ctx is done the command gets SIGTERM, and
// SIGKILL 10 s later, which it needs where a host is cut off. It skips the test, as [New] does,
// without that MPI.
func (c *Cluster) MPIRun(ctx context.Context, mpi MPI, ranksPerHost int, program string, args ...string) *exec.Cmd {
	c.t.Helper()
	for _, tool := range []string{mpi.Launcher(), mpi.Compiler()} {
		if _, err := exec.LookPath(tool); err != nil {
			lacks(c.t, "there is no %s", tool)
		}
	}
	var slots []string
	for _, h := range c.Hosts {
		slots = append(slots, fmt.Sprintf("%s:%d", h.Name, ranksPerHost))
	}
	flags := map[MPI]func(hosts string) []string{OpenMPI: c.openMPI, MPICH: c.mpich}[mpi](strings.Join(slots, ","))
	flags = append(flags, "-np", strconv.Itoa(ranksPerHost*len(c.Hosts)), program)
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
		"--mca", "osc", "^ucx", // it is taken first, for windows, and fails without InfiniBand
		"--mca", "mpi_yield_when_idle", "1",
	}
}

// Debian's MPICH is built on UCX, which shares memory between processes of one System V namespace,
// that is of one host. Without a way to share memory it would connect to a host's own ranks only
// when they end, and wait for one that does not listen any more.
func (c *Cluster) mpich(hosts string) []string {
	return []string{
		"-hosts", hosts, "-launcher", "rsh", "-launcher-exec", c.path("agent"), "-iface", "eth0",
		"-genv", "UCX_TLS", "tcp,self,sysv,posix", "-genv", "UCX_NET_DEVICES", "eth0",
	}
}
