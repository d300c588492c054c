// Launcher is spmoe's command line: it starts the ranks of a job on this machine.
//
//	launcher -np 8 train              train the debug model on the built-in text
//	launcher check golden/            compare this build with reference outputs
//	launcher help train               list the flags of a command
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/tensor/cpu"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1   // the job or a check failed
	exitUsage       = 2   // bad flags, configuration or input: nothing was started
	exitUndecided   = 3   // compare has shown neither equivalence nor a difference
	exitUnsaved     = 74  // train has ended without a checkpoint of its last step (EX_IOERR of sysexits.h)
	exitInterrupted = 130 // stopped on request; after a signal, 128 plus its number
)

// env is the environment of a command: its arguments, its output and the process that started it.
type env struct {
	args        []string // the arguments that are not flags
	commandLine []string // everything after the program's name
	out, errOut io.Writer
	member      spmd.Rank     // nil unless another process has started this one as a rank
	cluster     *spmd.Cluster // nil unless mpirun or srun has started this process
	hooks       hooks         // set by chaos when it runs train

	// runLine executes another command line in this process and returns its exit code.
	runLine func(ctx context.Context, args []string, out, errOut io.Writer) int
}

// hooks let chaos see and disturb the job that it tests. The zero hooks do nothing.
type hooks struct {
	Fault func(rank int, generation uint32) string // see [spmd.Processes]
	Event func(spmd.Event)
}

// failure is an error with an exit code. All other errors are user errors and exit with exitUsage.
type failure struct {
	err  error
	code int
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

func main() { os.Exit(runProcess()) }

// runProcess executes the command line of this process and returns the exit code.
func runProcess() int {
	return run(catchSignals(context.Background()), os.Args[1:], os.Stdout, os.Stderr)
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return exitCode(dispatch(ctx, args, out, errOut), errOut)
}

// exitCode prints an error, unless it is already printed or an interruption, and returns its exit
// code.
func exitCode(err error, errOut io.Writer) int {
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	if code != exitInterrupted && !errors.As(err, new(reportedError)) {
		fmt.Fprintf(errOut, "launcher: %v\n", err)
	}
	return code
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	if f := (failure{}); errors.As(err, &f) {
		return f.code
	}
	return exitUsage
}

// reportedError is an error that is already printed elsewhere: the launcher prints a rank's error,
// and a comparison's tables show its result.
type reportedError struct{ err error }

func (e reportedError) Error() string { return e.err.Error() }
func (e reportedError) Unwrap() error { return e.err }

// dispatch runs a command line in the role of this process: a rank of another process, a rank of a
// cluster, or the launcher.
func dispatch(ctx context.Context, args []string, out, errOut io.Writer) error {
	if err := errors.Join(cpu.Check(), system.CheckStart()); err != nil {
		return err
	}
	member, err := spmd.Joined()
	if err != nil {
		return err
	}
	if member != nil {
		outliveSignals(ctx)
		outliveOutput()
		err = perform(member.Context(ctx), args, env{member: member, out: out, errOut: errOut})
		if err == nil {
			return nil
		}
		if codeOf(err) != exitInterrupted {
			member.Abort(err)
		}
		return reportedError{err}
	}
	cluster, err := spmd.JoinCluster()
	if err != nil {
		return err
	}
	if cluster != nil {
		outliveOutput()
		return withSignal(ctx, performOnCluster(ctx, cluster, args, out, errOut, perform))
	}
	return withSignal(ctx, perform(ctx, args, env{out: out, errOut: errOut}))
}

// perform runs a command line.
func perform(ctx context.Context, args []string, with env) error {
	cmds := commands()
	name, rest, err := splitCommand(cmds, args)
	if err != nil {
		return err
	}
	if name == complete {
		printSuggestions(cmds, rest, with.out)
		return nil
	}
	cmd, ok := find(cmds, name)
	if !ok && name == "run" {
		return replacedRun(rest)
	}
	if !ok {
		return unknownCommand(cmds, name)
	}
	if cmd, rest, err = cmd.selectSubcommand(rest); err != nil {
		return seeHelp(err, cmd)
	}
	fs, execute := cmd.flags()
	if execute == nil { // it needs a subcommand, and selectSubcommand has found --help only
		describe(cmd, "", "", with.out)
		return nil
	}
	given := rest
	rest, err = parse(fs, rest)
	if errors.Is(err, flag.ErrHelp) {
		describe(cmd, "", flavorOf(given), with.out)
		return nil
	}
	if err != nil {
		return seeHelp(err, cmd)
	}
	if err := cmd.checkChoice(rest); err != nil {
		return err
	}
	if with.cluster != nil && !cmd.runsOnCluster() {
		return fmt.Errorf("%s has started this process, but %s runs in one process: "+
			"start it without %[1]s (train, bench exchange and bench link run on several hosts)",
			with.cluster.By(), cmd.name)
	}
	if cmd.outlives {
		outliveOutput()
	}
	with.args, with.commandLine, with.runLine = rest, args, run
	return execute(ctx, with)
}

// seeHelp adds to a parse error where the flags or the subcommands are listed.
func seeHelp(err error, cmd command) error {
	if len(cmd.subcommands) > 0 {
		return fmt.Errorf("%w (see launcher help %s)", err, cmd.name)
	}
	return fmt.Errorf("%w (launcher help %s lists the flags)", err, cmd.name)
}
