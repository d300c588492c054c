package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"spmoe/launcher/golden"
)

// checkFlags are the flags of check.
type checkFlags struct{ ranks int }

func defineCheck(fs *flag.FlagSet) func(context.Context, env) error {
	f := &checkFlags{}
	rankFlags(fs, &f.ranks, 1)
	return f.run
}

func (f *checkFlags) run(ctx context.Context, env env) error {
	if len(env.args) == 0 {
		return errors.New("check needs a golden folder: config.json, model.safetensors and activations.safetensors, optionally gradients.safetensors and a training trajectory")
	}
	misses := 0
	for _, path := range env.args {
		n, err := f.check(path, env.out)
		if err != nil {
			return err
		}
		misses += n
	}
	if misses > 0 {
		return failure{fmt.Errorf("%d out of bounds", misses), exitFailed}
	}
	return nil
}

// check holds the build against one folder and returns the number of misses.
func (f *checkFlags) check(path string, out io.Writer) (misses int, err error) {
	folder, err := golden.Open(path)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	if err := folder.Ranks(f.ranks); err != nil {
		return 0, fmt.Errorf("-np %d: %w", f.ranks, err)
	}
	lines, err := folder.Check(f.ranks)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if folder.HasTrajectory() {
		deviations, err := folder.Replay(f.ranks)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		lines = append(lines, golden.Lines(deviations)...)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\terror\tbound\t\tmeasure\n", path)
	for _, l := range lines {
		verdict, note := "ok", l.Rule
		if !l.OK() {
			verdict, note = "MISS", l.Rule+"; "+l.Note
			misses++
		} else if l.Rule == "" {
			verdict, note = "-", l.Note
		}
		fmt.Fprintf(table, "%s\t%.2e\t%.0e\t%s\t%s\n", l.Name, l.Error, l.Bound, verdict, note)
	}
	fmt.Fprintf(table, "%d compared, %d out of bounds\n", len(lines), misses)
	return misses, table.Flush()
}
