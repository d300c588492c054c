// Package running has what commands share that start ranks or open a trained model: ranks on
// goroutines, processes and clusters, signals, run folders, the display and side tasks of a run.
package running

// The flags of commands that start ranks, and how a job runs on goroutines, on processes or as one
// rank of another process.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"spmoe/collective"
	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/estimate"
)

// RankFlags say how many ranks there are, whether they are goroutines or processes, and how their
// failures are handled.
type RankFlags struct {
	Count   int
	Kind    string
	bind    string
	Wait    time.Duration
	Silence time.Duration
	lost    time.Duration

	spares   int
	restarts int
}

// DefineRankCount defines --np and mpirun's -n.
func DefineRankCount(fs *flag.FlagSet, ranks *int, initial int) {
	fs.IntVar(ranks, "np", initial, "(ranks) `N` ranks to start; -n is short for it")
	fs.IntVar(ranks, "n", initial, cli.Internal+"`N` short for --np")
}

// Define defines the flags.
func (f *RankFlags) Define(fs *flag.FlagSet) {
	DefineRankCount(fs, &f.Count, 1)
	cli.Choice(fs, &f.Kind, "ranks", "(ranks) `KIND` what runs each rank", "goroutine", "process")
	cli.Choice(fs, &f.bind, "bind-to", "(ranks) `WHAT` what rank processes are bound to", "none", "core")
	fs.DurationVar(&f.Wait, "timeout", 10*time.Minute, "(ranks) `TIME` treat a rank as hung when another waits for it longer than TIME; 0: never")
	fs.DurationVar(&f.Silence, "silence", spmd.DefaultSilence, "(ranks) `TIME` treat a rank process as hung after TIME without a sign of life")
	fs.DurationVar(&f.lost, "host-timeout", 10*time.Second, "(ranks) `TIME` treat a host of an mpirun or srun job as lost after TIME without a sign of life; 0: never")
	fs.IntVar(&f.spares, "spares", 0, "(ranks) `N` standby processes that replace failed ranks")
	fs.IntVar(&f.restarts, "restarts", defaultRestarts, "(ranks) `N` times to replace ranks that fail by themselves at one step, by a spare or a new process; 0: replace none")
}

// defaultRestarts is the default of --restarts.
const defaultRestarts = 3

// RankFlagNames returns the names of all flags of ranks.
func RankFlagNames() []string {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	new(RankFlags).Define(fs)
	return cli.FlagNames(fs)
}

// Check takes over the rank count of a cluster and returns an error if the flags contradict each
// other or are out of range.
func (f *RankFlags) Check(env cli.Env) error {
	if err := f.adoptCluster(env); err != nil {
		return err
	}
	switch {
	case f.Kind == "goroutine" && (f.bind != "none" || f.spares != 0):
		return errors.New("--bind-to and --spares need rank processes: add --ranks process")
	case f.spares < 0 || f.spares > collective.MaxRanks || f.restarts < 0:
		return fmt.Errorf("--spares is %d and --restarts %d: give 0 or more, at most %d spares", f.spares, f.restarts, collective.MaxRanks)
	case f.spares > 0 && f.restarts == 0:
		return errors.New("--spares has no effect with --restarts 0, which ends the job at the first failure: leave one out")
	case f.Wait < 0 || f.lost < 0 || f.Silence <= 0:
		return errors.New("--timeout and --host-timeout must not be negative, --silence must be positive")
	case f.Kind == "goroutine" && (f.Silence != spmd.DefaultSilence || env.Cluster == nil && f.restarts != defaultRestarts && f.restarts != 0):
		return errors.New("--silence and --restarts are about rank processes, which can be replaced: add --ranks process, or leave them out")
	case f.Count < 1 || f.Count > collective.MaxRanks:
		return fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.Count, collective.MaxRanks)
	}
	return nil
}

// Limits returns how long ranks wait for each other.
func (f *RankFlags) Limits() collective.Limits {
	return collective.Limits{Wait: f.Wait, Host: f.lost}
}

// Host returns this machine's share of the job.
func (f *RankFlags) Host(env cli.Env) estimate.Host {
	switch {
	case env.Cluster != nil:
		return estimate.Host{Ranks: env.Cluster.RanksHere(), First: env.Cluster.FirstRanks(), Processes: 1}
	case env.Member != nil:
		return estimate.Host{Ranks: f.Count}
	case f.Kind == "goroutine":
		return estimate.Host{Ranks: f.Count, Processes: 1}
	}
	return estimate.Host{Ranks: f.Count, Processes: f.Count + f.spares + 1, Vaults: f.restarts > 0}
}

// Resources are what a job needs from rank processes.
type Resources struct {
	Heap   int64  // bytes of shared memory per rank
	vault  int64  // bytes per rank that survive its process
	folder string // of the run
	held   *system.FolderLock
	Text   *os.File // for the ranks; may be nil
}

// JobResources returns the resources of a training job.
func JobResources(job *trainer.Job, folder string) Resources {
	return Resources{Heap: job.Heap(), vault: job.Vault(), folder: folder, held: job.Folder}
}

// Run runs a job. It runs here if the ranks are goroutines or if this process is a rank. Otherwise
// it starts processes with the same command line, after the arguments in more.
func (f *RankFlags) Run(ctx context.Context, env cli.Env, needs Resources, more []string, job func(spmd.World) error) error {
	world, err := f.Here(env, needs)
	if err != nil {
		return err
	}
	if world == nil {
		return f.Launch(ctx, env, needs, more)
	}
	return job(world)
}

// Here returns the ranks that this process runs itself, or nil if it must launch processes.
func (f *RankFlags) Here(env cli.Env, needs Resources) (spmd.World, error) {
	switch {
	case env.Member != nil:
		if err := env.Member.AwaitRank(); err != nil {
			return nil, err
		}
		env.Member.SetLimits(f.Limits())
		if env.Cluster != nil {
			env.Cluster.Heap = needs.Heap
			fmt.Fprintf(env.Out, "%s\n", env.Cluster.Describe())
		}
		return env.Member, nil
	case f.Kind == "goroutine":
		return spmd.Goroutines{N: f.Count, Limits: f.Limits()}, nil
	}
	return nil, nil
}

// Launch starts the ranks as processes and returns when they have ended. The arguments in more
// precede the command line of each.
func (f *RankFlags) Launch(ctx context.Context, env cli.Env, needs Resources, more []string) error {
	// Each process maps the memory of all.
	if err := system.CheckAddressSpace(int64(f.Count) * (needs.Heap + needs.vault)); err != nil {
		return err
	}
	debug.FreeOSMemory() // the ranks need it
	events := record.EventLog{Folder: needs.folder, Held: needs.held}
	err := (&spmd.Processes{
		Ranks: f.Count, Args: append(more, env.CommandLine...), Heap: needs.Heap, Vault: needs.vault, Bind: f.bind == "core",
		Expected: []int{cli.ExitInterrupted}, Out: env.Out, Err: env.ErrOut,
		Spares: f.spares, Restarts: f.restarts, Silence: f.Silence, Fault: env.Fault, Text: needs.Text,
		Events: func(e spmd.Event) {
			if e.Kind != spmd.Started { // the console reports starts
				events.Add(e)
			}
		},
	}).Run(ctx)
	if err := events.Close(); err != nil {
		fmt.Fprintf(env.ErrOut, "launcher: %v\n", err)
	}
	if e := (*spmd.ExitError)(nil); errors.As(err, &e) {
		return cli.Fail(err, e.Code)
	}
	if errors.Is(err, spmd.ErrNotBegun) {
		return cli.Fail(err, cli.ExitInterrupted)
	}
	return err
}
