package main

// Where ranks run: the flags of commands that start some, and what a rank that is a process of its
// own does differently.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"spmoe/collective"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer"
)

// worldFlags says how many ranks there are, and what they are.
type worldFlags struct {
	ranks   int
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

// rankFlags defines -np and mpirun's -n.
func rankFlags(fs *flag.FlagSet, ranks *int, initial int) {
	*ranks = initial
	fs.Var((*rankCount)(ranks), "np", "`N` ranks to start")
	fs.Var((*rankCount)(ranks), "n", "`N` the same as -np")
}

// rankCount is a flag.Value that says what it expects.
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

func (f *worldFlags) define(fs *flag.FlagSet) {
	rankFlags(fs, &f.ranks, 1)
	fs.StringVar(&f.kind, "ranks", "goroutine", "`KIND` of ranks: goroutine, all in one process, or process")
	fs.BoolVar(&f.tag, "tag-output", false, "begin every line that a rank process prints with its rank")
	fs.StringVar(&f.bind, "bind-to", "none", "`WHAT` rank processes are bound to: none or core")
	fs.BoolVar(&f.stacks, "get-stack-traces", false, "when a rank process fails, let the others print the stacks of their goroutines")
	fs.Int64Var(&f.heap, "heap-mib", 0, "`MIB` of shared memory that a rank process may use; 0: as the job seems to need")
	fs.DurationVar(&f.wait, "timeout", 10*time.Minute, "`TIME` that a rank waits for another before it is taken to hang; 0: for ever")
	fs.DurationVar(&f.silence, "silence", spmd.DefaultSilence, "`TIME` for which a rank process may be stopped before it is taken to hang")
	fs.DurationVar(&f.lost, "host-timeout", 10*time.Second, "`TIME` without a sign of life after which another host is lost, where mpirun or srun has started the ranks; 0: never")
	fs.IntVar(&f.spares, "spares", 0, "`N` processes more that wait to take the place of a rank process that fails")
	fs.IntVar(&f.restarts, "restarts", 3, "`N` failures of rank processes at one step that are healed, by a spare or a new process; 0: none")
}

// mostHeap is the largest --heap-mib: that of all ranks together is still a number of bytes.
const mostHeap = 1 << 30

func (f *worldFlags) check(env env) error {
	if err := f.join(env); err != nil {
		return err
	}
	switch {
	case f.kind != "goroutine" && f.kind != "process":
		return fmt.Errorf("--ranks is %q: use goroutine or process", f.kind)
	case f.bind != "none" && f.bind != "core":
		return fmt.Errorf("--bind-to is %q: use none or core", f.bind)
	case f.kind == "goroutine" && (f.bind != "none" || f.tag || f.stacks || f.heap != 0 && env.cluster == nil || f.spares != 0):
		return errors.New("--bind-to, --tag-output, --get-stack-traces, --heap-mib and --spares are for ranks that are processes: add --ranks process")
	case f.spares < 0 || f.spares > collective.MaxRanks || f.restarts < 0:
		return fmt.Errorf("--spares is %d and --restarts %d: give 0 or more, at most %d spares", f.spares, f.restarts, collective.MaxRanks)
	case f.spares > 0 && (f.restarts == 0 || f.stacks):
		return errors.New("--spares are of no use with --restarts 0 or --get-stack-traces, which end the job at the first failure: leave one out")
	case f.heap < 0 || f.wait < 0 || f.lost < 0 || f.silence <= 0:
		return errors.New("--heap-mib, --timeout and --host-timeout must not be negative, --silence must be positive")
	case f.heap > mostHeap:
		return fmt.Errorf("--heap-mib is %d: give at most %d", f.heap, mostHeap)
	case f.ranks < 1 || f.ranks > collective.MaxRanks:
		return fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.ranks, collective.MaxRanks)
	}
	return nil
}

func (f *worldFlags) limits() collective.Limits {
	return collective.Limits{Wait: f.wait, Host: f.lost}
}

// needs is what a job takes of the ranks' processes: shared memory for each, bytes of it that
// outlive a process, and the folder of the run.
type needs struct {
	heap, vault int64
	folder      string
}

func needsOf(job *trainer.Job, folder string) needs { return needs{job.Heap(), job.Vault(), folder} }

// run runs a job: here if ranks are goroutines, or if this process is a rank, and otherwise in
// processes of the same command line, to which more is added.
func (f *worldFlags) run(ctx context.Context, env env, needs needs, more []string, job func(spmd.World) error) error {
	world, err := f.here(env, needs)
	if err != nil {
		return err
	}
	if world == nil {
		return f.launch(ctx, env, needs, more)
	}
	return job(world)
}

// here returns the ranks that this process runs itself; nil if they are processes that it is to
// launch.
func (f *worldFlags) here(env env, needs needs) (spmd.World, error) {
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
		return spmd.Goroutines{N: f.ranks, Limits: f.limits()}, nil
	}
	return nil, nil
}

// heapOf returns the bytes of shared memory of a rank.
func (f *worldFlags) heapOf(needs needs) int64 {
	if f.heap > 0 {
		return f.heap << 20
	}
	return needs.heap
}

// launch starts the ranks as processes and returns when they have ended. more is added to the
// command line of each.
func (f *worldFlags) launch(ctx context.Context, env env, needs needs, more []string) error {
	events := record.EventLog{Folder: needs.folder}
	err := (&spmd.Processes{
		Ranks: f.ranks, Args: append(more, env.commandLine...), Heap: f.heapOf(needs), Vault: needs.vault, Tag: f.tag, Bind: f.bind == "core", Stacks: f.stacks,
		Expected: []int{exitInterrupted}, Out: env.out, Err: env.errOut,
		Spares: f.spares, Restarts: f.restarts, Silence: f.silence, Fault: env.hooks.Fault,
		Events: func(e spmd.Event) {
			if e.Kind != spmd.Started { // of this, the console tells
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
	return err
}

// quiet is where ranks other than the first report to. Which rank it is, a spare does not know yet.
func (e env) quiet() env {
	if e.member != nil {
		e.out = leading{e.member, e.out}
	}
	return e
}

// leading passes on what is written while its member leads.
type leading struct {
	member spmd.Rank
	to     io.Writer
}

func (l leading) Write(b []byte) (int, error) {
	if !l.member.Leads() {
		return len(b), nil
	}
	return l.to.Write(b)
}
