// Launcher is spmoe's command line: it starts the ranks of a job on this machine.
//
//	launcher -np 8 train              train the debug model on the built-in text
//	launcher check step/              judge a training step of another program (docs/check.md)
//	launcher help train               list the flags of a command
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"spmoe/launcher/cli"
	"spmoe/launcher/inspecting"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/tensor/cpu"
)

func main() {
	err := dispatch(running.CatchSignals(context.Background()), os.Args[1:], os.Stdout, os.Stderr)
	os.Exit(cli.ExitCode(err, os.Stderr))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return cli.ExitCode(dispatch(ctx, args, out, errOut), errOut)
}

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
		running.OutliveSignals(ctx)
		running.OutliveOutput()
		err = perform(member.Context(ctx), args, cli.Env{Member: member, Out: out, ErrOut: errOut})
		if err == nil {
			return nil
		}
		if cli.CodeOf(err) != cli.ExitInterrupted {
			member.Abort(err)
		}
		return cli.Reported(err)
	}
	cluster, err := spmd.JoinCluster()
	if err != nil {
		return err
	}
	if cluster != nil {
		running.OutliveOutput()
		return running.WithSignal(ctx, running.PerformOnCluster(ctx, cluster, args, out, errOut, perform))
	}
	return running.WithSignal(ctx, perform(ctx, args, cli.Env{Out: out, ErrOut: errOut}))
}

// perform runs a command line.
func perform(ctx context.Context, args []string, with cli.Env) error {
	cmds := commands()
	name, rest, err := cli.SplitCommand(cmds, args)
	if err != nil {
		return err
	}
	if name == "version" {
		return inspecting.PrintVersion(rest, with.Out)
	}
	cmd, ok := cli.Find(cmds, name)
	if !ok {
		return cli.UnknownCommand(cmds, "", name)
	}
	if cmd, rest, err = cmd.SelectSubcommand(rest); err != nil {
		return seeHelp(err, cmd)
	}
	fs, execute := cmd.Flags()
	if execute == nil { // it needs a subcommand, and selectSubcommand has found --help only
		cli.Describe(cmd, with.Out)
		return nil
	}
	rest, err = cli.Parse(fs, rest)
	if errors.Is(err, flag.ErrHelp) {
		cli.Describe(cmd, with.Out)
		return nil
	}
	if err != nil {
		return seeHelp(err, cmd)
	}
	if with.Cluster != nil && !cmd.RunsOnCluster() {
		return fmt.Errorf("%s has started this process, but %s runs in one process: "+
			"start it without %[1]s (train and bench exchange run on several hosts)",
			with.Cluster.By(), cmd.Name)
	}
	if cmd.Outlives {
		running.OutliveOutput()
	}
	with.Args, with.CommandLine, with.RunLine = rest, args, run
	return execute(ctx, with)
}

// seeHelp adds to a parse error where the flags or the subcommands are listed.
func seeHelp(err error, cmd cli.Command) error {
	if len(cmd.Subcommands) > 0 {
		return fmt.Errorf("%w (see launcher help %s)", err, cmd.Name)
	}
	return fmt.Errorf("%w (launcher help %s lists the flags)", err, cmd.Name)
}
