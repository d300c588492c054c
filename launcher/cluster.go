package main

// Commands as ranks that mpirun or srun has started.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// runsOnCluster reports whether a command can run as one rank of many hosts.
func (c command) runsOnCluster() bool {
	return slices.Contains([]string{"train", "bench exchange", "bench link", "version", "completion", "help"}, c.name)
}

// reportGrace is how long a failed rank that does not report the failure waits for the rank that
// does.
const reportGrace = 5 * time.Second

// performOnCluster runs a command line as one rank of a cluster.
func performOnCluster(
	ctx context.Context, c *spmd.Cluster, args []string, out, errOut io.Writer, perform func(context.Context, []string, env) error,
) error {
	note, err := c.CompareBuilds(system.Version())
	if note != "" && c.Leads() {
		fmt.Fprintf(errOut, "launcher: NOTE: %s\n", note)
	}
	if err == nil {
		err = perform(ctx, args, env{member: c, cluster: c, out: leaderWriter{c, out}, errOut: errOut})
	}
	code := exitOK
	if err != nil {
		code = codeOf(err)
	}
	reports := c.Tells(err)
	if errors.As(err, new(*trainer.DisagreementError)) { // all ranks have the same
		reports = c.Leads()
	}
	if reports && err != nil && code != exitInterrupted {
		fmt.Fprintf(errOut, "launcher: rank %d on host %s: %v\n", c.Number(), c.Host(), err)
	}
	together := code == exitOK || code == exitInterrupted || code == exitUsage
	if !together && !reports {
		time.Sleep(reportGrace) // the whole job ends when the reporting rank does
	}
	c.Leave(code, together)
	if err != nil {
		err = reportedError{err}
	}
	return err
}

// reportsJob reports whether this process reports on the whole job. It does if it has started the
// ranks, or if it is the leading rank of a cluster.
func (e env) reportsJob() bool {
	return e.member == nil || e.cluster != nil && e.cluster.Leads()
}

// adoptCluster sets the number of ranks to that of the cluster, if there is one. It refuses flags
// that contradict the program that has started the ranks.
func (f *rankFlags) adoptCluster(env env) error {
	c := env.cluster
	if c == nil {
		return nil
	}
	switch {
	case f.count != 1 && f.count != c.Ranks():
		return fmt.Errorf("-np is %d, but %s has started %d ranks: leave -np out", f.count, c.By(), c.Ranks())
	case f.kind != "goroutine" || f.tag || f.bind != "none" || f.stacks || f.spares > 0:
		return fmt.Errorf("--ranks, --tag-output, --bind-to, --get-stack-traces and --spares apply to ranks that this launcher starts: use the flags of %s instead", c.By())
	}
	f.count = c.Ranks()
	c.Watch(f.silence, func(err error, runs bool) {
		fmt.Fprintf(env.errOut, "launcher: rank %d on host %s: %v\n", c.Number(), c.Host(), err)
		if !runs {
			os.Exit(exitFailed) // the program that started the ranks ends the others
		}
	})
	return nil
}

// refuseTorchrun returns an error if torchrun, or another program that sets its variables, has
// started several of this process. Each of them would train on its own.
func refuseTorchrun(env env) error {
	if env.member != nil {
		return nil
	}
	size, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil || size < 2 || os.Getenv("RANK") == "" || os.Getenv("LOCAL_RANK") == "" {
		return nil
	}
	return fmt.Errorf("RANK, LOCAL_RANK and WORLD_SIZE=%d say that torchrun has started this process as one of %[1]d, and each would be a run of its own: "+
		"use launcher -np %[1]d on one host, or mpirun or srun on several (docs/cluster.md), or unset these variables", size)
}

// reportStop makes one rank per host print at once that the job has been asked to stop. The
// scheduler may kill the job before it has saved.
func reportStop(ctx context.Context, env env, folder string) (cancel func() bool) {
	if env.cluster == nil || !env.cluster.LeadsHost() {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() {
		path, err := checkpoint.Latest(folder)
		if err != nil {
			path = "none"
		}
		fmt.Fprintf(env.errOut, "launcher: host %s was asked to stop; newest checkpoint so far: %s\n", env.cluster.Host(), path)
	})
}

// withCheckpoint adds the newest checkpoint to the error of a run on many hosts.
func withCheckpoint(err error, env env, folder string) error {
	if err == nil || env.cluster == nil || errors.Is(err, trainer.ErrInterrupted) || errors.As(err, new(*trainer.DisagreementError)) {
		return err
	}
	path, none := checkpoint.Latest(folder)
	if none != nil {
		return fmt.Errorf("%w; there is no checkpoint yet in %s", err, folder)
	}
	return fmt.Errorf("%w; the newest checkpoint is %s: the same command continues from it on these hosts; add --resume to continue on other or fewer hosts", err, path)
}
