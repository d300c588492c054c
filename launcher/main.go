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

// command is one word of the command line. Each has its flags and runs with them parsed.
type command struct {
	name, args, about string
	define            func(fs *flag.FlagSet) func(ctx context.Context, env env) error
}

// env is what a command runs with.
type env struct {
	args        []string // what is left after the flags
	commandLine []string // all of it
	out, errOut io.Writer
	member      spmd.Rank     // if this process is a rank that another has started; nil otherwise
	cluster     *spmd.Cluster // if that is mpirun or srun
	hooks       hooks         // of a test that this launcher makes of itself
}

func commands() []command {
	return []command{
		{"train", "", "train a model on text", defineTrain},
		{"compare", "", "train in several precisions and test whether they end where the first does", defineCompare},
		{"check", "PATH...", "hold this build against golden data of another implementation", defineCheck},
		{"report", "[RUN...]", "write the page of a run, its plots and its TensorBoard events again", defineReport},
		{"checkpoint", "ls|verify|export PATH...", "list a run's checkpoints, verify them, or export weights as one safetensors file", defineCheckpoint},
		{"generate", "", "continue texts with a trained model", defineGenerate},
		{"eval", "", "measure how well a trained model predicts text", defineEval},
		{"convert", "", "write weights as a Hugging Face model, or change the type of such a model's weights", defineConvert},
		{"bench", "kernels|exchange|link|train|ratios", "measure this machine's kernels, the exchange of its ranks, the link between hosts, or training steps, against its own limits, or ratios for project", defineBench},
		{"project", "[explain|validate|sweep|hosts]", "what a recipe would do on a cluster of GPUs, and how far published figures are met; or on CPU hosts", defineProject},
		{"chaos", "[points|kill|stop|bits|short|launcher|files|quiet]", "train while ranks fail, and hold the result against an undisturbed run", defineChaos},
		{"data", "tokenize|inspect|train-tokenizer [PATH...]", "tokenize text once, look at what data holds, or train a tokenizer", defineData},
		{"inspect", "[FLAVOR|RUN|CHECKPOINT|FOLDER]", "a model's parameters, memory, FLOPs and bytes, part by part", defineInspect},
		{"completion", "bash|zsh|fish", "print a script that lets a shell complete command lines", defineCompletion},
		{"version", "", "what was built, and what it runs on", defineVersion},
	}
}

// failure is an error that carries its exit code; other errors are the user's to mend.
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

// exitCode is the exit code that an error means, of which the user is told.
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

// told is an error that the user is told of elsewhere: of a rank by its launcher, of a comparison by its tables.
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
		if err = perform(ctx, args, env{member: member, out: out, errOut: errOut}); err != nil && codeOf(err) != exitInterrupted {
			member.Abort(err)
		}
		if err != nil {
			err = told{err}
		}
		return err
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
	cmds, out := commands(), with.out
	with.commandLine = args
	name, args, err := splitCommand(cmds, args)
	if err != nil {
		return err
	}
	switch name {
	case "help":
		return help(cmds, args, out)
	case complete:
		suggest(cmds, args[min(1, len(args)):], out)
		return nil
	}
	cmd, ok := find(cmds, name)
	if !ok {
		return unknownCommand(cmds, name)
	}
	fs, action := cmd.flags()
	rest, err := parse(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		return help(cmds, []string{name}, out)
	} else if err != nil {
		return fmt.Errorf("%w (launcher help %s lists the flags)", err, name)
	}
	if err := cmd.misspeltAction(rest); err != nil {
		return err
	}
	if with.cluster != nil && !cmd.spans(rest) {
		return fmt.Errorf("%s has started this process, and %s %s runs in one process alone: start it by itself (train, bench exchange and bench link run on many hosts)",
			with.cluster.By(), name, strings.Join(rest, " "))
	}
	with.args = rest
	return action(ctx, with)
}
