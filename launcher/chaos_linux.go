package main

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

// hooks are what a test of this launcher sees and does; the zero hooks are those of everyone else.
type hooks = chaos.Hooks

// chaosFlags are the flags of chaos.
type chaosFlags struct {
	chaos.Config
	json string
}

func defineChaos(fs *flag.FlagSet) func(context.Context, env) error {
	f := &chaosFlags{}
	rankFlags(fs, &f.Ranks, 4)
	fs.IntVar(&f.Spares, "spares", 1, "`N` processes more that wait to take the place of a rank process that fails")
	fs.Uint64Var(&f.Seed, "seed", 1, "`N` seed of the choice of faults")
	fs.IntVar(&f.Count, "count", 0, "`N` faults of kill, stop, bits, launcher and files, or runs of points and short; 0: 200, 20, 100, 25, 24, all and 200")
	fs.DurationVar(&f.Every, "every", 2*time.Second, "`TIME` between the faults of a mix")
	fs.DurationVar(&f.For, "for", time.Minute, "`TIME` that a mix, or a quiet run, lasts")
	fs.StringVar(&f.Action, "action", "kill", "`WHAT` ranks do at points: kill, stop, segv, exit0, exit1, panic or loop")
	fs.StringVar(&f.At, "at", "", "`TEXT` that the names of points must have in them")
	fs.StringVar(&f.json, "json", "", "`FILE` to write every fault to, one JSON object a line")
	return f.run
}

func (f *chaosFlags) run(ctx context.Context, env env) (err error) {
	mode := strings.Join(env.args, " ")
	if mode == "" {
		mode = "mix"
	}
	if err := f.check(mode); err != nil {
		return err
	}
	if f.json != "" {
		file, err := os.Create(f.json)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		f.JSON = file
	}
	f.Out, f.Launch, f.Program = env.out, launchTrain, ownProgram
	ok, err := f.Config.Run(ctx, mode)
	switch {
	case errors.Is(err, context.Canceled):
		return failure{err, exitInterrupted}
	case err != nil:
		return failure{err, exitFailed}
	case !ok:
		return failure{told{errors.New("not all went as it must")}, exitFailed}
	}
	return nil
}

func (f *chaosFlags) check(mode string) error {
	usual := map[string]int{"kill": 200, "stop": 20, "launcher": 25, "short": 200, "bits": 100, "files": 24}
	switch {
	case !slices.Contains(chaos.Modes(), mode):
		return fmt.Errorf("chaos %q: say what to test: %s, or nothing for a mix", mode, strings.Join(chaos.Modes(), ", "))
	case f.Ranks < 1 || f.Ranks > collective.MaxRanks:
		return fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.Ranks, collective.MaxRanks)
	case f.Spares < 0 || f.Spares > collective.MaxRanks:
		return fmt.Errorf("--spares is %d: give 0 or more, at most %d", f.Spares, collective.MaxRanks)
	case f.Count < 0 || f.Every <= 0 || f.For <= 0:
		return errors.New("--count must not be negative, --every and --for must be positive")
	case !slices.Contains([]string{"kill", "stop", "segv", "exit0", "exit1", "panic", "loop"}, f.Action):
		return fmt.Errorf("--action is %q: use kill, stop, segv, exit0, exit1, panic or loop", f.Action)
	}
	if f.Count == 0 {
		f.Count = usual[mode]
	}
	return nil
}

// launchTrain runs a train command under hooks, and returns its exit code.
func launchTrain(ctx context.Context, commandLine []string, hooks hooks, out, errOut io.Writer) int {
	fs, action := command{define: defineTrain}.flags()
	rest, err := parse(fs, commandLine[1:])
	if err == nil {
		err = action(ctx, env{args: rest, commandLine: commandLine, out: out, errOut: errOut, hooks: hooks})
	}
	return exitCode(err, errOut)
}

// ownProgram is this program, as another process.
func ownProgram(args []string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return exec.Command(path, args...)
}
