package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/system"
	"spmoe/launcher/weights"
)

// newestWhole returns the newest checkpoint of a run that is whole, and the configuration in it. It
// sets aside damaged ones that are newer, and tells warn.
func newestWhole(run string, warn io.Writer) (path string, config []byte, err error) {
	r, err := checkpoint.Open(run)
	if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("nothing to resume in %s: %w", run, err)
	} else if err != nil {
		return "", nil, err
	}
	for _, a := range r.SetAside() {
		fmt.Fprintf(warn, "launcher: warning: %v; going on from %s\n", a, filepath.Base(r.Path()))
	}
	return r.Path(), r.ConfigTOML(), r.Close()
}

// checkpointFlags are the flags of checkpoint.
type checkpointFlags struct{ out, dtype string }

func defineCheckpoint(fs *flag.FlagSet) func(context.Context, env) error {
	f := &checkpointFlags{}
	fs.StringVar(&f.out, "out", "", "`FILE` that export writes, in the safetensors format")
	fs.StringVar(&f.dtype, "dtype", "bf16", "`TYPE` of exported weights: bf16 or fp32; selection biases are fp32 always")
	return f.run
}

func (f *checkpointFlags) run(ctx context.Context, env env) error {
	const usage = "checkpoint: say what to do: ls RUN, verify PATH... or export CHECKPOINT --out FILE"
	if len(env.args) == 0 {
		return errors.New(usage)
	}
	what, paths := env.args[0], env.args[1:]
	switch {
	case what != "ls" && what != "verify" && what != "export":
		return fmt.Errorf("%s, not %q", usage, what)
	case len(paths) == 0:
		return fmt.Errorf("checkpoint %s needs the folder of a run or of a checkpoint", what)
	case what != "export" && f.out != "":
		return fmt.Errorf("checkpoint %s writes no file: leave --out away", what)
	case what == "ls":
		return listCheckpoints(env.out, paths)
	case what == "verify":
		return verifyCheckpoints(ctx, env.out, paths)
	}
	return f.export(ctx, env.out, paths)
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
	return table.Flush()
}

// verifyCheckpoints reads all of some checkpoints, those of a run one by one, and changes nothing.
func verifyCheckpoints(ctx context.Context, out io.Writer, paths []string) error {
	var broken []string
	for _, path := range paths {
		steps, err := checkpoint.Steps(path)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if ctx.Err() != nil {
				return failure{ctx.Err(), exitInterrupted}
			}
			begin := time.Now()
			r, err := checkpoint.Open(step)
			if err != nil {
				fmt.Fprintf(out, "BROKEN %v\n", err)
				broken = append(broken, step)
				continue
			}
			took := time.Since(begin)
			fmt.Fprintf(out, "ok     %s: step %d of %d ranks, %s read and verified in %v\n", step, r.Step(), r.Ranks(), system.Bytes(r.Size()), took.Round(time.Millisecond))
			if err := r.Close(); err != nil {
				return err
			}
		}
	}
	if len(broken) > 0 {
		return failure{fmt.Errorf("broken: %s", strings.Join(broken, ", ")), exitFailed}
	}
	return nil
}

// export writes the weights of a checkpoint, or of a run's newest, to one file under their Hugging
// Face names.
func (f *checkpointFlags) export(ctx context.Context, out io.Writer, paths []string) error {
	switch {
	case len(paths) > 1:
		return fmt.Errorf("checkpoint export takes one checkpoint, not %q", paths)
	case f.out == "":
		return errors.New("checkpoint export needs --out FILE")
	case f.dtype != "bf16" && f.dtype != "fp32":
		return fmt.Errorf("--dtype is %q: use bf16 or fp32", f.dtype)
	}
	source, err := weights.OpenCheckpoint(paths[0])
	if err != nil {
		return err
	}
	defer source.Close()
	n, err := source.Export(ctx, f.out, weights.Options{DType: f.dtype})
	if err != nil {
		return writeFailure(err)
	}
	fmt.Fprintf(out, "%d tensors of %s to %s\n", n, source.Path(), f.out)
	return nil
}
