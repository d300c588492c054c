package inspecting

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/state"
	"spmoe/launcher/weights"
)

// CheckpointCommands are the subcommands of checkpoint.
func CheckpointCommands() []cli.Command {
	noFlags := func(run cli.Action) func(*flag.FlagSet) cli.Action {
		return func(fs *flag.FlagSet) cli.Action { return needPaths(fs.Name(), run) }
	}
	return []cli.Command{
		{Name: "checkpoint ls", Args: "RUN...", About: "list the checkpoints of runs", Examples: []string{"checkpoint ls runs/debug-1"},
			Define: noFlags(func(_ context.Context, env cli.Env) error { return listCheckpoints(env.Out, env.Args) })},
		{Name: "checkpoint verify", Args: "PATH...", About: "verify the checksums of checkpoints, or of all checkpoints of runs",
			Examples: []string{"checkpoint verify runs/debug-1"},
			Define:   noFlags(func(ctx context.Context, env cli.Env) error { return verifyCheckpoints(ctx, env.Out, env.Args) })},
		{Name: "checkpoint export", Args: "PATH", About: "export the weights of a checkpoint, or of a run's newest one, to one safetensors file",
			Examples: []string{"checkpoint export runs/debug-1 --out model.safetensors"}, Define: defineExport},
	}
}

// needPaths wraps the action of a subcommand that needs at least one path.
func needPaths(name string, run cli.Action) cli.Action {
	return func(ctx context.Context, env cli.Env) error {
		if len(env.Args) == 0 {
			return fmt.Errorf("%s needs the folder of a run or of a checkpoint", name)
		}
		return run(ctx, env)
	}
}

// exportFlags are the flags of checkpoint export.
type exportFlags struct {
	out, dtype string
	averaged   bool
}

func defineExport(fs *flag.FlagSet) cli.Action {
	f := &exportFlags{}
	running.DefineAveraged(fs, &f.averaged)
	fs.StringVar(&f.out, "out", "", "`FILE` write the safetensors file FILE")
	fs.StringVar(&f.dtype, "dtype", "bf16", "`TYPE` type of the exported weights: bf16 or fp32; selection biases are always fp32")
	return needPaths(fs.Name(), f.run)
}

// listCheckpoints prints a table of the checkpoints of runs.
func listCheckpoints(out io.Writer, runs []string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "folder\tstep\twritten\tsize\tranks\tstate")
	for _, run := range runs {
		entries, err := checkpoint.List(run)
		if err != nil {
			return err
		}
		for _, e := range entries {
			ranks := "-"
			if e.Ranks > 0 {
				ranks = fmt.Sprint(e.Ranks)
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", filepath.Join(run, e.Name), e.Step, e.Time.Format(time.DateTime), system.Bytes(e.Bytes), ranks, e.State())
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, run := range runs {
		if several := checkpoint.Several(run); several != "" {
			fmt.Fprintf(out, "%s has checkpoints of several runs (%s)\n", run, several)
		}
	}
	return nil
}

// verifyCheckpoints reads every byte of checkpoints, or of all checkpoints of runs. It changes
// nothing.
func verifyCheckpoints(ctx context.Context, out io.Writer, paths []string) error {
	var broken []string
	for _, path := range paths {
		steps, err := checkpoint.Steps(path)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if ctx.Err() != nil {
				return cli.Fail(ctx.Err(), cli.ExitInterrupted)
			}
			begin := time.Now()
			r, err := checkpoint.Open(step, state.CheckState)
			if err != nil {
				fmt.Fprintf(out, "BROKEN %v\n", err)
				broken = append(broken, step)
				continue
			}
			took := time.Since(begin)
			unsummed := ""
			if !r.Summed() {
				unsummed = ", without checksums of the state in training"
			}
			fmt.Fprintf(out, "ok     %s: step %d of %d ranks, %s read and verified in %v%s\n", step, r.Step(), r.Ranks(), system.Bytes(r.Size()), took.Round(time.Millisecond), unsummed)
			if err := r.Close(); err != nil {
				return err
			}
		}
	}
	if len(broken) > 0 {
		return cli.Fail(fmt.Errorf("broken: %s", strings.Join(broken, ", ")), cli.ExitFailed)
	}
	return nil
}

// run writes the weights of a checkpoint, or of a run's newest, to one file under their Hugging
// Face names.
func (f *exportFlags) run(ctx context.Context, env cli.Env) error {
	switch {
	case len(env.Args) > 1:
		return fmt.Errorf("checkpoint export takes one checkpoint, not %q", env.Args)
	case f.out == "":
		return errors.New("checkpoint export needs --out FILE")
	case f.dtype != "bf16" && f.dtype != "fp32":
		return fmt.Errorf("--dtype is %q: use bf16 or fp32", f.dtype)
	}
	source, err := running.OpenWeights(weights.OpenCheckpoint, env.Args[0], f.averaged)
	if err != nil {
		return err
	}
	defer source.Close()
	n, err := source.Export(ctx, f.out, weights.Options{DType: f.dtype})
	if err != nil {
		return running.WriteFailure(err)
	}
	fmt.Fprintf(env.Out, "%d tensors of %s to %s\n", n, source.Path(), f.out)
	return nil
}
