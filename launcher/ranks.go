package main

// The flags of commands that start ranks, and how a job runs on goroutines, on processes or as one
// rank of another process.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"time"

	"spmoe/collective"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// rankFlags say how many ranks there are, whether they are goroutines or processes, and how their
// failures are handled.
type rankFlags struct {
	count   int
	kind    string
	tag     bool
	bind    string
	stacks  bool
	heap    int64 // MiB
	wait    time.Duration
	silence time.Duration
	lost    time.Duration

	spares   int
	restarts int
}

// defineRankCount defines --np and mpirun's -n.
func defineRankCount(fs *flag.FlagSet, ranks *int, initial int) {
	*ranks = initial
	fs.Var((*rankCount)(ranks), "np", "`N` ranks to start")
	fs.Var(alias{(*rankCount)(ranks)}, "n", "`N` short for --np")
}

// alias is a second name of a flag. Help prints the default with the first.
type alias struct{ flag.Value }

func (alias) String() string { return "" }

// rankCount is a number of ranks as a flag.Value, whose errors say what it expects.
type rankCount int

func (n *rankCount) String() string { return strconv.Itoa(int(*n)) }

func (n *rankCount) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("it must be a whole number, 1 or more")
	}
	*n = rankCount(v)
	return nil
}

func (f *rankFlags) define(fs *flag.FlagSet) {
	defineRankCount(fs, &f.count, 1)
	fs.StringVar(&f.kind, "ranks", "goroutine", "`KIND` run each rank as a goroutine or as a process")
	fs.BoolVar(&f.tag, "tag-output", false, "prefix each line of a rank process with its rank")
	fs.StringVar(&f.bind, "bind-to", "none", "`WHAT` bind rank processes to a core each, or to none")
	fs.BoolVar(&f.stacks, "get-stack-traces", false, "print the goroutine stacks of all ranks when a rank process fails")
	fs.Int64Var(&f.heap, "heap-mib", 0, "`MIB` shared memory per rank process; 0: as the job is expected to need")
	fs.DurationVar(&f.wait, "timeout", 10*time.Minute, "`TIME` treat a rank as hung when another waits for it longer than TIME; 0: never")
	fs.DurationVar(&f.silence, "silence", spmd.DefaultSilence, "`TIME` treat a rank process as hung after TIME without a sign of life")
	fs.DurationVar(&f.lost, "host-timeout", 10*time.Second, "`TIME` treat a host of an mpirun or srun job as lost after TIME without a sign of life; 0: never")
	fs.IntVar(&f.spares, "spares", 0, "`N` standby processes that replace failed ranks")
	fs.IntVar(&f.restarts, "restarts", defaultRestarts, "`N` times to replace ranks that fail by themselves at one step, by a spare or a new process; 0: replace none")
}

// defaultRestarts is the default of --restarts.
const defaultRestarts = 3

// rankFlagNames returns the names of all flags of ranks.
func rankFlagNames() []string {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	new(rankFlags).define(fs)
	return flagNames(fs)
}

// mostHeap is the largest --heap-mib: the bytes of all ranks together still fit into an int64.
const mostHeap = 1 << 30

// check takes over the rank count of a cluster and returns an error if the flags contradict each
// other or are out of range.
func (f *rankFlags) check(env env) error {
	if err := f.adoptCluster(env); err != nil {
		return err
	}
	if err := refuseTorchrun(env); err != nil {
		return err
	}
	switch {
	case f.kind != "goroutine" && f.kind != "process":
		return fmt.Errorf("--ranks is %q: use goroutine or process", f.kind)
	case f.bind != "none" && f.bind != "core":
		return fmt.Errorf("--bind-to is %q: use none or core", f.bind)
	case f.kind == "goroutine" && (f.bind != "none" || f.tag || f.stacks || f.heap != 0 && env.cluster == nil || f.spares != 0):
		return errors.New("--bind-to, --tag-output, --get-stack-traces, --heap-mib and --spares need rank processes: add --ranks process")
	case f.spares < 0 || f.spares > collective.MaxRanks || f.restarts < 0:
		return fmt.Errorf("--spares is %d and --restarts %d: give 0 or more, at most %d spares", f.spares, f.restarts, collective.MaxRanks)
	case f.spares > 0 && (f.restarts == 0 || f.stacks):
		return errors.New("--spares has no effect with --restarts 0 or --get-stack-traces, which end the job at the first failure: leave one out")
	case f.heap < 0 || f.wait < 0 || f.lost < 0 || f.silence <= 0:
		return errors.New("--heap-mib, --timeout and --host-timeout must not be negative, --silence must be positive")
	case f.kind == "goroutine" && env.cluster == nil && (f.silence != spmd.DefaultSilence || f.restarts != defaultRestarts && f.restarts != 0):
		return errors.New("--silence and --restarts are about rank processes, which can be replaced: add --ranks process, or leave them out")
	case f.heap > mostHeap:
		return fmt.Errorf("--heap-mib is %d: give at most %d", f.heap, mostHeap)
	case f.count < 1 || f.count > collective.MaxRanks:
		return fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.count, collective.MaxRanks)
	}
	return nil
}

func (f *rankFlags) limits() collective.Limits {
	return collective.Limits{Wait: f.wait, Host: f.lost}
}

// host returns this machine's share of the job.
func (f *rankFlags) host(env env) trainer.Host {
	switch {
	case env.cluster != nil:
		return trainer.Host{Ranks: env.cluster.RanksHere(), Processes: 1}
	case env.member != nil:
		return trainer.Host{Ranks: f.count}
	case f.kind == "goroutine":
		return trainer.Host{Ranks: f.count, Processes: 1}
	}
	return trainer.Host{Ranks: f.count, Processes: f.count + f.spares + 1, Vaults: f.restarts > 0 && !f.stacks}
}

// resources are what a job needs from rank processes.
type resources struct {
	heap   int64  // bytes of shared memory per rank
	vault  int64  // bytes per rank that survive its process
	folder string // of the run
	held   *system.FolderLock
}

// jobResources returns the resources of a training job.
func jobResources(job *trainer.Job, folder string) resources {
	return resources{job.Heap(), job.Vault(), folder, job.Folder}
}

// run runs a job. It runs here if the ranks are goroutines or if this process is a rank. Otherwise
// it starts processes with the same command line, after the arguments in more.
func (f *rankFlags) run(ctx context.Context, env env, needs resources, more []string, job func(spmd.World) error) error {
	world, err := f.here(env, needs)
	if err != nil {
		return err
	}
	if world == nil {
		return f.launch(ctx, env, needs, more)
	}
	return job(world)
}

// here returns the ranks that this process runs itself, or nil if it must launch processes.
func (f *rankFlags) here(env env, needs resources) (spmd.World, error) {
	switch {
	case env.member != nil:
		if err := env.member.AwaitRank(); err != nil {
			return nil, err
		}
		env.member.SetLimits(f.limits())
		if env.cluster != nil {
			env.cluster.Heap = f.heapOf(needs)
			fmt.Fprintf(env.out, "%s\n", env.cluster.Describe())
		}
		return env.member, nil
	case f.kind == "goroutine":
		return spmd.Goroutines{N: f.count, Limits: f.limits()}, nil
	}
	return nil, nil
}

// heapOf returns the bytes of shared memory per rank.
func (f *rankFlags) heapOf(needs resources) int64 {
	if f.heap > 0 {
		return f.heap << 20
	}
	return needs.heap
}

// launch starts the ranks as processes and returns when they have ended. The arguments in more
// precede the command line of each.
func (f *rankFlags) launch(ctx context.Context, env env, needs resources, more []string) error {
	// Each process maps the memory of all.
	if err := system.CheckAddressSpace(int64(f.count) * (f.heapOf(needs) + needs.vault)); err != nil {
		return err
	}
	debug.FreeOSMemory() // the ranks need it
	events := record.EventLog{Folder: needs.folder, Held: needs.held}
	err := (&spmd.Processes{
		Ranks: f.count, Args: append(more, env.commandLine...), Heap: f.heapOf(needs), Vault: needs.vault, Tag: f.tag, Bind: f.bind == "core", Stacks: f.stacks,
		Expected: []int{exitInterrupted}, Out: env.out, Err: env.errOut,
		Spares: f.spares, Restarts: f.restarts, Silence: f.silence, Fault: env.hooks.Fault,
		Events: func(e spmd.Event) {
			if e.Kind != spmd.Started { // the console reports starts
				events.Add(e)
			}
			if env.hooks.Event != nil {
				env.hooks.Event(e)
			}
		},
	}).Run(ctx)
	if err := events.Close(); err != nil {
		fmt.Fprintf(env.errOut, "launcher: %v\n", err)
	}
	if e := (*spmd.ExitError)(nil); errors.As(err, &e) {
		return failure{err, e.Code}
	}
	if errors.Is(err, spmd.ErrNotBegun) {
		return failure{err, exitInterrupted}
	}
	return err
}

// leaderOnly returns env with output from the leading rank only. The writer decides at each write,
// because a spare does not know its rank yet.
func (e env) leaderOnly() env {
	if e.member != nil {
		e.out = leaderWriter{e.member, e.out}
	}
	return e
}

// leaderWriter writes while its member is the leading rank, and discards otherwise.
type leaderWriter struct {
	member spmd.Rank
	to     io.Writer
}

func (w leaderWriter) Write(b []byte) (int, error) {
	if !w.member.Leads() {
		return len(b), nil
	}
	return w.to.Write(b)
}
