package inspecting

// inspect of a run lists its checkpoints; inspect --verify reads every byte of some.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/state"
)

// listCheckpoints prints a table of the checkpoints of a run, if it has any.
func listCheckpoints(out io.Writer, run string) error {
	entries, err := checkpoint.List(run)
	if err != nil || len(entries) == 0 {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\ncheckpoint\twritten\tsize\tranks\tstate")
	for _, e := range entries {
		ranks := "-"
		if e.Ranks > 0 {
			ranks = fmt.Sprint(e.Ranks)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", filepath.Join(run, e.Name), e.Time.Format(time.DateTime), system.Bytes(e.Bytes), ranks, e.State)
	}
	return table.Flush()
}

// savedRanks returns the number of ranks that wrote the newest checkpoint of a run, or of the run
// of a checkpoint; 1 of what is neither.
func savedRanks(args []string) int {
	if len(args) == 1 && !slices.Contains(cli.Flavors(), args[0]) {
		for _, run := range []string{args[0], filepath.Dir(args[0])} {
			if all, err := checkpoint.List(run); err == nil && len(all) > 0 {
				return max(all[len(all)-1].Ranks, 1)
			}
		}
	}
	return 1
}

// verifyCheckpoints reads every byte of checkpoints, or of all checkpoints of runs. It changes
// nothing.
func verifyCheckpoints(ctx context.Context, out io.Writer, paths []string) error {
	if len(paths) == 0 {
		return errors.New("--verify needs the folder of a run or of a checkpoint, as in launcher inspect runs/debug-1 --verify")
	}
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
			unsummed := ""
			if !r.Summed() {
				unsummed = ", without checksums of the state in training"
			}
			fmt.Fprintf(out, "ok     %s: step %d of %s, %s read and verified in %v%s\n",
				step, r.Step(), report.Plural(r.Ranks(), "rank"), system.Bytes(r.Size()), time.Since(begin).Round(time.Millisecond), unsummed)
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
