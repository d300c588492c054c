//go:build linux

// Package slurm starts a Slurm cluster of one node for a test: its own munged, slurmctld and
// slurmd, which end with the test.
package slurm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"spmoe/internal/testing/need"
)

// Cluster is a Slurm that runs until the end of the test that started it. Its methods end the test
// that they are given, which may be a subtest, if a Slurm command fails.
type Cluster struct{ dir string }

const (
	startLimit = time.Minute     // for the node to be ready
	jobLimit   = 5 * time.Minute // for a job to end
)

// Start starts Slurm with this machine as the only node, which runs cpus tasks at once, regardless
// of the number of cores. It skips the test if that is not possible, or unless SPMOE_NEED_HOSTS=1
// is set, because it starts daemons and takes time.
func Start(t testing.TB, cpus int) *Cluster {
	t.Helper()
	if !need.Hosts() {
		t.Skip("starts a Slurm, which takes a while: set SPMOE_NEED_HOSTS=1")
	}
	if os.Geteuid() != 0 {
		need.Missing(t, "Slurm's daemons need root")
	}
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo"} {
		if _, err := exec.LookPath(name); err != nil {
			need.Missing(t, "%s is not installed, or not in PATH (Debian: slurm-wlm)", name)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	c := &Cluster{dir: t.TempDir()}
	c.write(t, "hosts", "127.0.0.1 localhost "+host+"\n", 0o644)
	c.write(t, "munge.key", rand.Text()+rand.Text(), 0o400) // munged needs at least 32 bytes
	c.write(t, "slurm.conf", c.config(t, host, cpus), 0o644)
	c.startDaemons(t)
	c.await(t, startLimit, func() (string, bool) {
		state, _ := c.Command("sinfo", "--noheader", "--format=%T").CombinedOutput()
		return string(state), strings.TrimSpace(string(state)) == "idle"
	})
	return c
}

// initScript is the first process of a PID namespace, so that no process of a job or daemon
// survives it, even a detached one. It ends when the other end of its standard input is closed,
// also if the test is killed. Slurm listens at the address of the machine's name, which is the
// loopback interface here.
const initScript = `
mount -t proc proc /proc && mount --bind hosts /etc/hosts || exit
munge=$PWD/munge
munged --force --socket=$munge.socket --key-file=$munge.key --log-file=$munge.log --pid-file=$munge.pid --seed-file=$munge.seed || exit
slurmctld -D &
slurmd -D &
read -r _
exit 0
`

func (c *Cluster) startDaemons(t testing.TB) {
	t.Helper()
	log, err := os.Create(c.path("init.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	init := c.Command("sh", "-c", initScript)
	init.Dir = c.dir
	init.Stdout, init.Stderr = log, log
	init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	stop, err := init.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := init.Start(); errors.Is(err, syscall.EPERM) {
		need.Missing(t, "no PID namespace for Slurm's daemons: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop.Close()
		if err := init.Wait(); err != nil {
			t.Errorf("the first process of Slurm's namespace: %v%s", err, c.logs())
		}
	})
}

// await polls until the answer is as expected.
func (c *Cluster) await(t testing.TB, limit time.Duration, ask func() (answer string, ok bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, ok := ask()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("Slurm still says after %v:\n%s%s", limit, answer, c.logs())
		case <-tick.C:
		}
	}
}

// Submit submits a script, waits until the job has ended, and returns its output and its exit code,
// 128 + n if signal n has killed it. args are sbatch's options, the file of the script, and the
// script's own arguments. A requeued job has not ended.
func (c *Cluster) Submit(t testing.TB, args ...string) (output string, code int) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "output")
	id, err := c.Command("sbatch", append([]string{"--parsable", "--output=" + out}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("sbatch %q: %v\n%s", args, err, id)
	}
	var end []string
	// sbatch --wait would poll at increasing intervals.
	c.await(t, jobLimit, func() (string, bool) {
		job, _ := c.Command("scontrol", "show", "job", strings.TrimSpace(string(id))).CombinedOutput()
		end = ended.FindStringSubmatch(string(job))
		return string(job), end != nil
	})
	printed, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("the job's output: %v%s", err, c.logs())
	}
	code, _ = strconv.Atoi(end[1])
	if signal, _ := strconv.Atoi(end[2]); signal != 0 {
		code = 128 + signal
	}
	return string(printed), code
}

// ended matches scontrol's description of a completed job, with its exit code and signal.
var ended = regexp.MustCompile(`(?s)JobState=(?:BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|TIMEOUT)\b.* ExitCode=(\d+):(\d+)`)

// Command returns a command for this cluster, such as squeue or scancel.
func (c *Cluster) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	// The test may itself run in a Slurm job, or under mpirun.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc([]string{"SLURM", "SBATCH_", "SRUN_", "PMI", "OMPI_"}, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	cmd.Env = append(cmd.Env, "SLURM_CONF="+c.path("slurm.conf"))
	return cmd
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) write(t testing.TB, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// logs returns the ends of the daemons' logs.
func (c *Cluster) logs() string {
	var all strings.Builder
	for _, name := range []string{"init.log", "munge.log", "slurmctld.log", "slurmd.log"} {
		text, err := os.ReadFile(c.path(name))
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&all, "\n--- %s\n%s", name, text[max(0, len(text)-2000):])
	}
	return all.String()
}
