package running

// Commands as ranks that mpirun or srun has started.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/events"
)

const (
	// reportGrace is how long a failed rank that does not report the failure waits for the rank
	// that does.
	reportGrace = 5 * time.Second
	// printTime is how long what a rank prints may take to reach mpiexec. MPICH's can lose it
	// if the rank ends sooner.
	printTime = 500 * time.Millisecond
)

// PerformOnCluster runs a command line as one rank of a cluster.
func PerformOnCluster(
	ctx context.Context, c *spmd.Cluster, args []string, out, errOut io.Writer, perform func(context.Context, []string, cli.Env) error,
) error {
	note, err := c.CompareBuilds(system.Version())
	if note != "" && c.Leads() {
		fmt.Fprintf(errOut, "launcher: NOTE: %s\n", note)
	}
	if err == nil {
		err = perform(ctx, args, cli.Env{
			Member:  c,
			Cluster: c,
			Out:     cli.LeaderWriter{Member: c, To: out},
			ErrOut:  errOut,
		})
	}
	code := cli.ExitOK
	if err != nil {
		code = cli.CodeOf(err)
	}
	reports := c.Tells(err)
	if errors.As(err, new(*trainer.DisagreementError)) { // all ranks have the same
		reports = c.Leads()
	}
	if reports && err != nil && code != cli.ExitInterrupted {
		fmt.Fprintf(errOut, "launcher: rank %d on host %s: %v\n", c.Number(), c.Host(), err)
	}
	together := code == cli.ExitOK || code == cli.ExitInterrupted || code == cli.ExitUsage
	switch {
	case together:
	case reports:
		time.Sleep(printTime)
	default:
		time.Sleep(reportGrace) // the whole job ends when the reporting rank does
	}
	c.Leave(code, together)
	if err != nil {
		err = cli.Reported(err)
	}
	return err
}

// adoptCluster sets the number of ranks to that of the cluster, if there is one. It refuses flags
// that contradict the program that has started the ranks.
func (f *RankFlags) adoptCluster(env cli.Env) error {
	c := env.Cluster
	if c == nil {
		return nil
	}
	switch {
	case f.Count != 1 && f.Count != c.Ranks():
		return fmt.Errorf("-np is %d, but %s has started %d ranks: leave -np out", f.Count, c.By(), c.Ranks())
	case f.Kind != "goroutine" || f.bind != "none" || f.spares > 0:
		return fmt.Errorf("--ranks, --bind-to and --spares apply to ranks that this launcher starts: use the flags of %s instead", c.By())
	}
	f.Count = c.Ranks()
	c.SetLimits(f.Limits())
	return nil
}

// ReportStop makes one rank per host print at once that the job has been asked to stop. The
// scheduler may kill the job before it has saved.
func ReportStop(ctx context.Context, env cli.Env, folder string) (cancel func() bool) {
	if env.Cluster == nil || !env.Cluster.LeadsHost() {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() {
		path, err := checkpoint.Latest(folder)
		if err != nil {
			path = "none"
		}
		fmt.Fprintf(env.ErrOut, "launcher: host %s was asked to stop; newest checkpoint so far: %s\n", env.Cluster.Host(), path)
	})
}

// WithCheckpoint adds the newest checkpoint to the error of a run on many hosts.
func WithCheckpoint(err error, env cli.Env, folder string) error {
	if err == nil || env.Cluster == nil || errors.Is(err, events.ErrInterrupted) || errors.As(err, new(*trainer.DisagreementError)) {
		return err
	}
	path, none := checkpoint.Latest(folder)
	if none != nil {
		return fmt.Errorf("%w; there is no checkpoint yet in %s", err, folder)
	}
	return fmt.Errorf("%w; the newest checkpoint is %s: the same command continues from it on these hosts; add --resume to continue on other or fewer hosts", err, path)
}
