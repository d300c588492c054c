// Launcher is spmoe's command line: it starts the ranks of a job on this machine.
//
//	launcher -np 8 train              train the debug model on the built-in text
//	launcher check golden/            hold this build against reference outputs
//	launcher help train               the flags of a command
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"spmoe/launcher/spmd"
	"spmoe/tensor/cpu"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1   // the job or a check failed
	exitUsage       = 2   // bad flags, configuration or input: nothing was started
	exitInterrupted = 130 // stopped by SIGINT or SIGTERM, after saving
)

// env is what a command runs with.
type env struct {
	args        []string // the arguments that are no flags
	commandLine []string // everything after the program's name
	out, errOut io.Writer
	member      spmd.Rank     // nil, unless another process has started this one as a rank
	cluster     *spmd.Cluster // nil, unless mpirun or srun has started this process
	hooks       hooks         // of chaos, which runs train
}

// failure is an error with an exit code. Other errors are mistakes of the user: exitUsage.
type failure struct {
	err  error
	code int
}

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return exitCode(dispatch(ctx, args, out, errOut), errOut)
}

// exitCode prints an error and returns its exit code.
func exitCode(err error, errOut io.Writer) int {
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	if code != exitInterrupted && !errors.As(err, new(told)) {
		fmt.Fprintf(errOut, "launcher: %v\n", err)
	}
	return code
}

func codeOf(err error) int {
	if f := (failure{}); errors.As(err, &f) {
		return f.code
	}
	return exitUsage
}

// told is an error that is printed elsewhere: a rank's by its launcher, a comparison's in its
// tables.
type told struct{ err error }

func (t told) Error() string { return t.err.Error() }
func (t told) Unwrap() error { return t.err }

func dispatch(ctx context.Context, args []string, out, errOut io.Writer) error {
	if err := cpu.Check(); err != nil {
		return err
	}
	member, err := spmd.Joined()
	if err != nil {
		return err
	}
	if member != nil {
		err = perform(ctx, args, env{member: member, out: out, errOut: errOut})
		if err == nil {
			return nil
		}
		if codeOf(err) != exitInterrupted {
			member.Abort(err)
		}
		return told{err}
	}
	cluster, err := spmd.JoinCluster()
	if err != nil {
		return err
	}
	if cluster != nil {
		return performIn(ctx, cluster, args, out, errOut)
	}
	return perform(ctx, args, env{out: out, errOut: errOut})
}

// perform runs a command line.
func perform(ctx context.Context, args []string, with env) error {
	cmds := commands()
	name, rest, err := splitCommand(cmds, args)
	if err != nil {
		return err
	}
	if name == complete {
		printSuggestions(cmds, rest[min(1, len(rest)):], with.out)
		return nil
	}
	cmd, ok := find(cmds, name)
	if !ok {
		return unknownCommand(cmds, name)
	}
	fs, action := cmd.flags()
	rest, err = parse(fs, rest)
	if errors.Is(err, flag.ErrHelp) {
		describe(cmd, with.out)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w (launcher help %s lists the flags)", err, name)
	}
	if err := cmd.checkAction(rest); err != nil {
		return err
	}
	if with.cluster != nil && !cmd.spans(rest) {
		return fmt.Errorf("%s has started this process, and %s %s runs in one process alone: "+
			"start it by itself (train, bench exchange and bench link run on many hosts)",
			with.cluster.By(), name, strings.Join(rest, " "))
	}
	with.args, with.commandLine = rest, args
	return action(ctx, with)
}
