package main

// Ranks on several hosts, started by real MPIs and a real Slurm, and how they end.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spmoe/internal/testing/hosts"
	"spmoe/internal/testing/slurm"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/save"
)

// mpis are those that the tests are made with.
var mpis = []hosts.MPI{hosts.OpenMPI, hosts.MPICH}

// programs are the launcher, built with each MPI.
type programs map[hosts.MPI]string

// TestCluster needs a C compiler, two MPIs, Slurm, root and some minutes: it runs where
// SPMOE_NEED_HOSTS=1 says that they are there.
func TestCluster(t *testing.T) {
	if os.Getenv("SPMOE_NEED_HOSTS") != "1" {
		t.Skip("builds the launcher with two MPIs and runs it on several hosts, which takes minutes: set SPMOE_NEED_HOSTS=1")
	}
	built := programs{}
	for _, mpi := range mpis {
		built[mpi] = filepath.Join(t.TempDir(), "launcher-"+string(mpi))
		cmd := exec.Command("go", "build", "-tags", "mpi", "-o", built[mpi], ".")
		cmd.Env = append(os.Environ(), "CC="+mpi.Compiler(), "CGO_ENABLED=1")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building with %s: %v\n%s", mpi.Compiler(), err, text)
		}
	}
	for name, test := range map[string]func(*testing.T){
		"Agrees": built.agree, "Uneven": built.uneven, "Layout bytes": built.layoutBytes,
		"Fewer hosts": built.fewer, "Host killed": built.kill, "Mistakes": built.mistakes, "Slurm": built.slurm,
	} {
		t.Run(name, test)
	}
}

// watchedJob is a command that a test watches.
type watchedJob struct {
	*exec.Cmd
	text lockedBuffer
	ctx  context.Context
}

// launched starts a command.
func launched(t *testing.T, ctx context.Context, cmd *exec.Cmd) *watchedJob {
	t.Helper()
	j := &watchedJob{Cmd: cmd, ctx: ctx}
	cmd.Stdout, cmd.Stderr = &j.text, &j.text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return j
}

// await returns when the text has been printed.
func (j *watchedJob) await(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(j.text.String(), text) {
		select {
		case <-j.ctx.Done():
			t.Fatalf("%q has not been printed, only\n%s", text, j.text.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// trainingArgs is the command line of a short run.
func trainingArgs(out string, more ...string) []string {
	return append([]string{"train", "--flavor", "debug", "--steps", "3", "--set", "eval_sequences=8", "--set", "sample_tokens=0", "--out", out}, more...)
}

// ended runs a command and returns what it has printed.
func ended(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &text)
	}
	return text.String()
}

// limited returns a context with a time limit, for programs that may hang.
func limited(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(stop)
	return ctx
}

// newestStep is that of the newest checkpoint.
func newestStep(t *testing.T, run string) (step int) {
	t.Helper()
	path, err := checkpoint.Latest(run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(filepath.Base(path), "step-%d", &step); err != nil {
		t.Fatal(err)
	}
	return step
}

// savedAt is the checksum of the state after some steps, however ranks divide it.
func savedAt(t *testing.T, run string, steps int) string {
	t.Helper()
	r, err := checkpoint.Open(filepath.Join(run, fmt.Sprintf("step-%08d", steps)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sums, err := save.ReadStateSums(r)
	if err != nil {
		t.Fatal(err)
	}
	return sums.All
}

// One of four hosts is cut off. The others end, name it, and say from which checkpoint fewer hosts
// go on: three, as a pipeline, and two, to the bits of a run that nothing has disturbed.
func (built programs) fewer(t *testing.T) {
	const planned = "100000"
	args := func(out string, more ...string) []string {
		return trainingArgs(out, append([]string{"--set", "schedule_steps=" + planned, "--eval-every", "0", "--set", "model.layers=3"}, more...)...)
	}
	for _, mpi := range mpis {
		t.Run(string(mpi), func(t *testing.T) {
			program := built[mpi]
			out := filepath.Join(t.TempDir(), "run")
			ctx, stop := context.WithCancel(limited(t))
			defer stop()
			c := hosts.New(t, 4)
			j := launched(t, ctx, c.MPIRun(ctx, mpi, 1, program, args(out, "--steps", planned, "--ep", "2", "--save-every", "1", "--set", "keep=3", "--host-timeout", "3s")...))
			j.await(t, "saved "+out)
			c.Hosts[3].Cut()
			silent := "rank 3: host host3 (rank 3) has been silent for 3s"
			if j.await(t, silent); mpi == hosts.OpenMPI { // MPICH's job ends with the first rank
				for h := range 3 {
					j.await(t, fmt.Sprintf("launcher: rank %d on host host%[1]d: %s", h, silent))
				}
			}
			j.await(t, "the newest checkpoint is "+out)
			stop() // Open MPI's own end may take a minute
			if err := j.Wait(); err == nil {
				t.Error("the job has ended well")
			}
			end := newestStep(t, out) + 2
			steps := fmt.Sprint(end)
			whole := filepath.Join(t.TempDir(), "run")
			ended(t, exec.CommandContext(limited(t), program, append([]string{"-np", "4"}, args(whole, "--steps", steps)...)...))
			want := savedAt(t, whole, end)
			for ranks, how := range map[int][]string{3: {"--pp", "3", "--set", "pp_microbatches=4", "--ep", "1"}, 2: {"--ep", "1"}} {
				run := filepath.Join(t.TempDir(), "run")
				if err := os.CopyFS(run, os.DirFS(out)); err != nil {
					t.Fatal(err)
				}
				ended(t, hosts.New(t, ranks).MPIRun(limited(t), mpi, 1, program, args(run, append(how, "--steps", steps, "--resume", "--allow-changes")...)...))
				if savedAt(t, run, end) != want {
					t.Errorf("%d hosts go on to another state than a run without a break", ranks)
				}
			}
		})
	}
}

// A host that is killed ends the job, and another start of the same command goes on.
func (built programs) kill(t *testing.T) {
	for _, mpi := range mpis {
		t.Run(string(mpi), func(t *testing.T) {
			c := hosts.New(t, 2)
			out := filepath.Join(t.TempDir(), "run")
			ctx := limited(t)
			j := launched(t, ctx, c.MPIRun(ctx, mpi, 2, built[mpi], trainingArgs(out, "--steps", "100000", "--save-every", "2")...))
			j.await(t, "saved "+out)
			c.Hosts[1].Kill()
			if err := j.Wait(); err == nil || ctx.Err() != nil {
				t.Fatalf("the job ends with %v, %v", err, ctx.Err())
			}
			step := newestStep(t, out)
			again := ended(t, c.MPIRun(limited(t), mpi, 2, built[mpi], "train", "--resume", "--allow-changes", "--out", out, "--steps", fmt.Sprint(step+1)))
			if !strings.Contains(again, fmt.Sprintf("step-%08d", step)) {
				t.Errorf("the second start does not go on from step %d: %s", step, again)
			}
		})
	}
}

// otherRate is a shell script that starts the launcher, $0, with another learning rate on rank 1.
const otherRate = `[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 ] && set -- "$@" --optimizer.lr 0.5
exec "$0" "$@"`

// Mistakes are told once, not by every rank, and end the job.
func (built programs) mistakes(t *testing.T) {
	for args, want := range map[string]string{
		"-np 3 train":            "-np is 3, but ",
		"compare --quick":        "runs in one process:",
		"train --ranks process":  "apply to ranks that this launcher starts",
		"train --flavor nothing": "nothing",
		"train --out OUT":        "optimizer.lr is 0.003 on rank 0 on host host0, but 0.5 on rank 1 on host host1: start all ranks with the same flags",
	} {
		for _, mpi := range mpis {
			program := built[mpi]
			t.Run(fmt.Sprintf("%s/%s", mpi, args), func(t *testing.T) {
				c := hosts.New(t, 2)
				words := append([]string{"-c", otherRate, program}, strings.Fields(strings.Replace(args, "OUT", t.TempDir(), 1))...)
				text, err := c.MPIRun(limited(t), mpi, 1, "sh", words...).CombinedOutput()
				if err == nil || strings.Count(string(text), want) != 1 || strings.Contains(string(text), "step: ") {
					t.Errorf("%v, and prints\n%s\nwhich does not say once %q", err, text, want)
				}
			})
		}
	}
}

// Without MPI in it, the launcher says how to build it with.
func TestClusterWithoutMPI(t *testing.T) {
	for _, variables := range [][]string{
		{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"},
		{"PMI_RANK=1", "PMI_SIZE=4"},
		{"PMIX_RANK=1", "PMIX_NAMESPACE=x", "SLURM_STEP_NUM_TASKS=4"},
		{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4"},
	} {
		p := prepare(t, strings.Join(variables, " "), "train")
		if code := p.begin(t).end(); code == 0 || !strings.Contains(p.errOut.String(), "CC=mpicc go build -tags mpi") {
			t.Errorf("%v: exit code %d, %s", variables, code, p.errOut.String())
		}
	}
}

// The batch script of the documentation, run by a real Slurm.
func (built programs) slurm(t *testing.T) {
	for _, mpi := range mpis {
		t.Run(string(mpi), func(t *testing.T) {
			program := built[mpi]
			c := slurm.Start(t, 4)
			out := filepath.Join(t.TempDir(), "run")
			kind := map[hosts.MPI]string{hosts.OpenMPI: "pmix", hosts.MPICH: "pmi2"}[mpi]
			args := append([]string{"--nodes=1", "--ntasks-per-node=4", "--cpus-per-task=1", "--export=ALL,LAUNCHER=" + program + ",RUN=" + out + ",SLURM_MPI_TYPE=" + kind,
				filepath.Join("..", "docs", "cluster", "train.sbatch")}, trainingArgs(out)[1:]...)
			text, code := c.Submit(t, args...)
			if code != 0 || !strings.Contains(text, "4 ranks of ") || !strings.Contains(text, "done: 3 steps") {
				t.Errorf("the job ends with %d and prints\n%s", code, text)
			}
		})
	}
}
