package checking

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
	"spmoe/internal/fault"
	"spmoe/launcher/chaos"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/training"
)

// chaosFlags are the flags of chaos. Each test defines those that it reads.
type chaosFlags struct{ chaos.Config }

// define defines the flags that all tests have, and those of a mode.
func (f *chaosFlags) define(fs *flag.FlagSet, mode chaos.Mode) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	running.DefineRankCount(all, &f.Ranks, 4)
	all.IntVar(&f.Spares, "spares", 1, "(ranks) `N` standby processes that replace failed ranks")
	all.Uint64Var(&f.Seed, "seed", 1, "`N` seed of the choice of faults")
	all.IntVar(&f.Count, "count", mode.Count, "`N` faults to inject; 0: the default")
	all.DurationVar(&f.Every, "every", 2*time.Second, "`TIME` average time between faults")
	all.DurationVar(&f.For, "for", time.Minute, "`TIME` duration of the test, as undisturbed training time")
	all.StringVar(&f.Action, "action", "kill", "`WHAT` what the rank does at a point: "+strings.Join(fault.Failures(), ", "))
	all.StringVar(&f.At, "at", "", "`TEXT` test only points whose names contain TEXT")
	cli.SelectFlags(fs, all, append(mode.Flags, "np", "n", "spares", "seed"))
	if f := fs.Lookup("count"); f != nil && mode.Count == 0 {
		f.Usage = "`N` number of runs; 0: each point once on each rank"
	}
}

// DefineChaos defines the flags of the mix.
func DefineChaos(fs *flag.FlagSet) cli.Action { return chaosAction(fs, chaos.Modes()[0]) }

// ChaosCommands are the subcommands of chaos: its modes, except the mix.
func ChaosCommands() (all []cli.Command) {
	for _, mode := range chaos.Modes()[1:] {
		all = append(all, cli.Command{Name: "chaos " + mode.Name, About: mode.About, Examples: []string{"-np 4 chaos " + mode.Name},
			Define: func(fs *flag.FlagSet) cli.Action { return chaosAction(fs, mode) }})
	}
	return all
}

// chaosAction returns the action that runs one test.
func chaosAction(fs *flag.FlagSet, mode chaos.Mode) cli.Action {
	f := &chaosFlags{}
	f.define(fs, mode)
	return cli.NoArguments(func(ctx context.Context, env cli.Env) error {
		if err := f.check(); err != nil {
			return err
		}
		return f.run(ctx, env, mode)
	})
}

func (f *chaosFlags) run(ctx context.Context, env cli.Env, mode chaos.Mode) error {
	f.Out, f.Launch, f.Program = env.Out, LaunchTrain, OwnProgram
	ok, err := f.Config.Run(ctx, mode)
	switch {
	case errors.Is(err, context.Canceled):
		return cli.Fail(err, cli.ExitInterrupted)
	case err != nil:
		return cli.Fail(err, cli.ExitFailed)
	case !ok:
		return cli.Fail(cli.Reported(errors.New("some faults were not handled")), cli.ExitFailed)
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
	case !slices.Contains(fault.Failures(), f.Action):
		return fmt.Errorf("--action is %q: use %s", f.Action, cli.OneOf(fault.Failures()))
	}
	return nil
}

// LaunchTrain runs a train command with hooks and returns its exit code.
func LaunchTrain(ctx context.Context, commandLine []string, with chaos.Hooks, out, errOut io.Writer) int {
	fs, train := cli.Command{Define: training.DefineTrain}.Flags()
	rest, err := cli.Parse(fs, commandLine[1:])
	if err == nil {
		err = train(ctx, cli.Env{Args: rest, CommandLine: commandLine, Out: out, ErrOut: errOut, Hooks: cli.Hooks(with)})
	}
	return cli.ExitCode(err, errOut)
}

// OwnProgram returns this program as a command with arguments.
func OwnProgram(args []string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return exec.Command(path, args...)
}
