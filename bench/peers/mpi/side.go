package main

// A side of the comparison: how to build and start it, and how to parse its output.

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed src
var sources embed.FS

// patience bounds the time of a run. MPI ranks that wait for each other do not end on their own.
const patience = 10 * time.Minute

// side is one program that measures.
type side struct {
	name    string
	prefix  string // of the names of its results
	command func(ranks int, e extent) []string
}

// implementation is a kind of MPI.
type implementation struct {
	name, prefix, debian string
	flags                func(ranks int) []string
}

var implementations = []implementation{
	{"Open MPI", "openmpi", "libopenmpi-dev openmpi-bin", func(ranks int) []string {
		flags := []string{"--mca", "btl_vader_single_copy_mechanism", "cma"}
		if oversubscribed(ranks) {
			return append(flags, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
		}
		return append(flags, "--bind-to", "core")
	}},
	{"MPICH", "mpich", "libmpich-dev mpich", func(ranks int) []string {
		if oversubscribed(ranks) {
			return nil
		}
		return []string{"-bind-to", "core"}
	}},
}

func oversubscribed(ranks int) bool { return ranks > runtime.NumCPU() }

// build builds all programs in folder. It skips an MPI that is not installed and names the packages
// that it needs. It returns an error if there is none.
func build(ctx context.Context, out io.Writer, folder string) ([]side, error) {
	launcher := filepath.Join(folder, "launcher")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", launcher, "spmoe/launcher").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the launcher: %w\n%s", err, text)
	}
	if err := os.CopyFS(folder, sources); err != nil {
		return nil, err
	}
	sides := []side{engine("goroutines", launcher), engine("processes", launcher, "--ranks", "process")}
	ours := len(sides)
	for _, m := range implementations {
		program, err := m.build(ctx, folder)
		if err != nil {
			fmt.Fprintf(out, "without %s: %v\n", m.name, err)
			continue
		}
		sides = append(sides, m.side(program))
	}
	if len(sides) == ours {
		return nil, errors.New("there is no MPI to compare with")
	}
	return sides, nil
}

// engine returns the launcher with ranks of one kind.
func engine(name, launcher string, kind ...string) side {
	return side{name: name, command: func(ranks int, e extent) []string {
		args := append([]string{launcher, "-np", strconv.Itoa(ranks), "bench", "exchange"}, kind...)
		args = append(args, "--match", "^("+strings.Join(e.groups, "|")+")$", "--json", "-")
		if e.quick {
			args = append(args, "--quick")
		}
		if len(kind) > 0 && !oversubscribed(ranks) {
			args = append(args, "--bind-to", "core")
		}
		return args
	}}
}

func (m implementation) build(ctx context.Context, folder string) (program string, err error) {
	for _, tool := range []string{"mpicc." + m.prefix, "mpirun." + m.prefix} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("there is no %s: install it (Debian: apt-get install %s)", tool, m.debian)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "src", "*.c"))
	if err != nil {
		return "", err
	}
	program = filepath.Join(folder, "exchange."+m.prefix)
	args := append([]string{"-O3", "-march=native", "-Wall", "-Werror", "-o", program}, files...)
	if text, err := exec.CommandContext(ctx, "mpicc."+m.prefix, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("its program does not build: %w\n%s", err, text)
	}
	return program, nil
}

func (m implementation) side(program string) side {
	return side{name: m.name, prefix: m.prefix + "_", command: func(ranks int, e extent) []string {
		args := append([]string{"mpirun." + m.prefix, "-np", strconv.Itoa(ranks)}, m.flags(ranks)...)
		return append(append(args, program, m.prefix, strconv.Itoa(e.repeats)), e.groups...)
	}}
}

// measure runs the program once.
func (s side) measure(ctx context.Context, ranks int, e extent) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := s.command(ranks, e)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // which mpirun forwards to its ranks
	cmd.WaitDelay = 10 * time.Second
	if os.Geteuid() == 0 {
		cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(complaints.Bytes()))
	}
	return parse(bytes.NewReader(text))
}

// result is one line of a program's output.
type result struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`      // over MPI from the first rank's start to the last one's end
	Unit    string  `json:"unit"`       // us or x
	Slowest float64 `json:"slowest_us"` // over MPI: of the slowest rank, as in the engine's benchmark
	Wrong   int     `json:"wrong"`      // number of wrong elements
	Library string  `json:"library"`    // name and version of the MPI
}

// time returns the time as the engine's benchmark defines it: that of the slowest rank, from its
// own start.
func (r result) time() float64 {
	if r.Slowest > 0 {
		return r.Slowest
	}
	return r.Value
}

// parse reads a sequence of JSON objects. It returns an error if there is none, or if one has a
// wrong result.
func parse(r io.Reader) (results []result, err error) {
	for d := json.NewDecoder(r); ; {
		var one result
		if err := d.Decode(&one); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("result %d: %w", len(results)+1, err)
		}
		if one.Wrong != 0 {
			return nil, fmt.Errorf("%s: %d elements are wrong", one.Name, one.Wrong)
		}
		results = append(results, one)
	}
	if len(results) == 0 {
		return nil, errors.New("the program printed no result")
	}
	return results, nil
}
