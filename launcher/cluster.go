package main

// Ranks that mpirun or srun has started.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer"
)

// spans says whether a command can run as one rank of many hosts.
func (c command) spans(args []string) bool {
	switch c.name {
	case "bench":
		return len(args) == 1 && slices.Contains([]string{"exchange", "link"}, args[0])
	case "train", "version", "completion", "help":
		return true
	}
	return false
}

// lastWords is how long a rank that has nothing to tell of the job's failure lets the others speak.
const lastWords = 5 * time.Second

// performIn runs a command line as one rank of a cluster.
func performIn(ctx context.Context, c *spmd.Cluster, args []string, out, errOut io.Writer) error {
	err := perform(ctx, args, env{member: c, cluster: c, out: leading{c, out}, errOut: errOut})
	code := exitOK
	if err != nil {
		code = codeOf(err)
	}
	tells := c.Tells(err)
	if tells && err != nil && code != exitInterrupted {
		fmt.Fprintf(errOut, "launcher: rank %d on host %s: %v\n", c.Number(), c.Host(), err)
	}
	together := code == exitOK || code == exitInterrupted || code == exitUsage
	if !together && !tells {
		time.Sleep(lastWords) // of the rank that tells, whose end is everyone's
	}
	c.Leave(code, together)
	if err != nil {
		err = told{err}
	}
	return err
}

// first says whether this process tells of the whole job: it has started the ranks, or is the first
// of those that another has started.
func (e env) first() bool {
	return e.member == nil || e.cluster != nil && e.cluster.Leads()
}

// ranksHere is how many of n ranks are on this host.
func (e env) ranksHere(n int) int {
	if e.cluster != nil {
		return e.cluster.RanksHere()
	}
	return n
}

// join takes over what has started the ranks of a cluster.
func (f *worldFlags) join(env env) error {
	c := env.cluster
	if c == nil {
		return nil
	}
	switch {
	case f.ranks != 1 && f.ranks != c.Ranks():
		return fmt.Errorf("-np is %d, and %s has started %d ranks: leave -np out", f.ranks, c.By(), c.Ranks())
	case f.kind != "goroutine" || f.tag || f.bind != "none" || f.stacks || f.spares > 0:
		return fmt.Errorf("--ranks, --tag-output, --bind-to, --get-stack-traces and --spares are for ranks that this launcher starts: give %s its own flags", c.By())
	}
	f.ranks = c.Ranks()
	return nil
}

// tellOfStop lets one rank of each host say at once when the job is told to stop: those who tell it
// may not leave the time to save.
func tellOfStop(ctx context.Context, env env, folder string) (cancel func() bool) {
	if env.cluster == nil || !env.cluster.LeadsHost() {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() {
		path, err := checkpoint.Latest(folder)
		if err != nil {
			path = "none"
		}
		fmt.Fprintf(env.errOut, "launcher: host %s is told to stop; newest checkpoint so far: %s\n", env.cluster.Host(), path)
	})
}

// resumable adds to the error of a run on many hosts where it can go on from.
func resumable(err error, env env, folder string) error {
	if err == nil || env.cluster == nil || errors.Is(err, trainer.ErrInterrupted) {
		return err
	}
	path, none := checkpoint.Latest(folder)
	if none != nil {
		return fmt.Errorf("%w; there is no checkpoint yet in %s", err, folder)
	}
	return fmt.Errorf("%w; the newest checkpoint is %s: the same command goes on from it, on these hosts or with --resume on fewer or others", err, path)
}
