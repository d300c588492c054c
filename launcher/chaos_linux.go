package main

// chaos: its flags and subcommands. Package chaos has the tests.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"spmoe/collective"
	"spmoe/launcher/chaos"
)

// hooks let chaos see and disturb the job that it tests. The zero hooks do nothing.
type hooks = chaos.Hooks

// chaosFlags are the flags of chaos. Each test defines those that it reads.
type chaosFlags struct {
	chaos.Config
	json string
}

// define defines the flags that all tests have, and the named ones. count is the default of
// --count.
func (f *chaosFlags) define(fs *flag.FlagSet, count int, names ...string) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	defineRankCount(all, &f.Ranks, 4)
	all.IntVar(&f.Spares, "spares", 1, "`N` standby processes that replace failed ranks")
	all.Uint64Var(&f.Seed, "seed", 1, "`N` seed of the choice of faults")
	all.IntVar(&f.Count, "count", count, "`N` faults to inject; 0: the default")
	all.DurationVar(&f.Every, "every", 2*time.Second, "`TIME` average time between faults")
	all.DurationVar(&f.For, "for", time.Minute, "`TIME` duration of the test, as undisturbed training time")
	all.StringVar(&f.Action, "action", "kill", "`WHAT` what the rank does at a point: "+strings.Join(chaosActions(), ", "))
	all.StringVar(&f.At, "at", "", "`TEXT` test only points whose names contain TEXT")
	all.StringVar(&f.json, "json", "", "`FILE` write each fault to FILE as a JSON line")
	selectFlags(fs, all, append(names, "np", "n", "spares", "seed", "json"))
	if f := fs.Lookup("count"); f != nil && count == 0 {
		f.Usage = "`N` number of runs; 0: each point once on each rank"
	}
}

// chaosActions are the values of --action.
func chaosActions() []string {
	return []string{"kill", "stop", "segv", "exit0", "exit1", "panic", "loop"}
}

func defineChaos(fs *flag.FlagSet) action {
	f := &chaosFlags{}
	f.define(fs, 0, "every", "for")
	return f.action("mix", 0)
}

// chaosCommands are the subcommands of chaos: its tests, except the mix.
func chaosCommands() []command {
	sub := func(name, about string, count int, flags ...string) command {
		return command{name: "chaos " + name, about: about, examples: []string{"-np 4 chaos " + name}, define: func(fs *flag.FlagSet) action {
			f := &chaosFlags{}
			f.define(fs, count, flags...)
			return f.action(name, count)
		}}
	}
	return []command{
		sub("points", "make each rank fail at each fault point of the code, in a short run each", 0, "count", "action", "at"),
		sub("kill", "kill rank processes", 200, "count"),
		sub("stop", "stop rank processes and continue them later", 20, "count"),
		sub("bits", "flip single bits in memory while every step is computed twice", 100, "count"),
		sub("short", "make short runs and kill a process at a random time, even before the first step", 200, "count"),
		sub("launcher", "kill the launcher and continue with the same command", 25, "count"),
		sub("files", "damage the newest checkpoint and continue from the one before", 24, "count"),
		sub("quiet", "overload the processors without injecting faults, and count false alarms", 0, "for"),
	}
}

// action returns the action that runs one test. count is used if --count is 0.
func (f *chaosFlags) action(test string, count int) action {
	return noArguments(func(ctx context.Context, env env) error {
		if err := f.check(); err != nil {
			return err
		}
		if f.Count == 0 {
			f.Count = count
		}
		return f.run(ctx, env, test)
	})
}

func (f *chaosFlags) run(ctx context.Context, env env, test string) (err error) {
	if f.json != "" {
		file, err := os.Create(f.json)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		f.JSON = file
	}
	f.Out, f.Launch, f.Program = env.out, launchTrain, ownProgram
	ok, err := f.Config.Run(ctx, test)
	switch {
	case errors.Is(err, context.Canceled):
		return failure{err, exitInterrupted}
	case err != nil:
		return failure{err, exitFailed}
	case !ok:
		return failure{reportedError{errors.New("some faults were not handled")}, exitFailed}
	}
	return nil
}

func (f *chaosFlags) check() error {
	switch {
	case f.Ranks < 1 || f.Ranks > collective.MaxRanks:
		return fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.Ranks, collective.MaxRanks)
	case f.Spares < 0 || f.Spares > collective.MaxRanks:
		return fmt.Errorf("--spares is %d: give 0 or more, at most %d", f.Spares, collective.MaxRanks)
	case f.Count < 0 || f.Every <= 0 || f.For <= 0:
		return errors.New("--count must not be negative, --every and --for must be positive")
	case !slices.Contains(chaosActions(), f.Action):
		return fmt.Errorf("--action is %q: use %s", f.Action, oneOf(chaosActions()))
	}
	return nil
}

// launchTrain runs a train command with hooks and returns its exit code.
func launchTrain(ctx context.Context, commandLine []string, hooks hooks, out, errOut io.Writer) int {
	fs, train := command{define: defineTrain}.flags()
	rest, err := parse(fs, commandLine[1:])
	if err == nil {
		err = train(ctx, env{args: rest, commandLine: commandLine, out: out, errOut: errOut, hooks: hooks})
	}
	return exitCode(err, errOut)
}

// ownProgram returns this program as a command with arguments.
func ownProgram(args []string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return exec.Command(path, args...)
}
