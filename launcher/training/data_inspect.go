package training

// data inspect: statistics of each source, and samples.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/system"
)

func (f *dataFlags) inspect(ctx context.Context, env cli.Env) error {
	if f.samples < 0 {
		return fmt.Errorf("--samples is %d: give 0 or more", f.samples)
	}
	tokenizer, err := f.open()
	if err != nil {
		return err
	}
	all, err := datasets.Inspect(ctx, f.data, tokenizer, f.options(), f.samples)
	if err != nil {
		return err
	}
	if f.json {
		out := json.NewEncoder(env.Out)
		out.SetIndent("", "  ")
		return out.Encode(all)
	}
	return printInspections(env.Out, all, tokenizer)
}

func printInspections(out io.Writer, all []datasets.Inspection, t datasets.Tokenizer) error {
	for i, one := range all {
		if i > 0 {
			fmt.Fprintln(out)
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		line := func(name, format string, args ...any) {
			fmt.Fprintf(table, "  %s\t"+format+"\n", append([]any{name}, args...)...)
		}
		fmt.Fprintf(table, "%s\n", cli.Printable(one.Source))
		if one.Weight > 0 {
			line("weight", "%g", one.Weight)
		}
		if line("files", "%d", one.Files); one.Other > 0 {
			line("left out", "%d files without rows, because the others of their folder have rows", one.Other)
		}
		line("documents", "%d (%d duplicates; %d more skipped: empty or binary)", one.Documents, one.Duplicates, one.Skipped)
		if one.NUL+one.Replaced > 0 {
			line("changed", "%d documents without their NUL bytes; %d with U+FFFD for invalid characters", one.NUL, one.Replaced)
		}
		if note := datasets.SpecialNote(t, one.Special); note != "" {
			line("special", "%s", note)
		}
		line("text", "%s", system.Bytes(one.Bytes))
		line("tokens", "%d by %s, %.3f bytes/token", one.Tokens, cli.Printable(one.Tokenizer), one.BytesPerToken)
		q := one.Lengths
		line("length", "%d to %d %s; quantiles: 10 %% %d, 50 %% %d, 90 %% %d, 99 %% %d", q.Min, q.Max, one.Unit, q.P10, q.Median, q.P90, q.P99)
		line("validation", "%.2f %%", 100*one.HeldOut)
		if o := one.Overlap; o != nil {
			line("overlap", "%s", overlap(*o))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, s := range one.Samples {
			fmt.Fprintf(out, "  --- %s\n", cli.Printable(s.Name))
			for text := range strings.Lines(s.Text) {
				fmt.Fprintf(out, "  | %s\n", cli.Printable(strings.TrimSuffix(text, "\n")))
			}
		}
	}
	return nil
}

// overlap describes how much validation text occurs in training text.
func overlap(o datasets.Overlap) string {
	return fmt.Sprintf("%.2f %% of the validation text removed because training text has it too; %.2f %% of the rest is in such runs of 5 lines",
		100*float64(o.Removed)/float64(max(o.Removed+o.HeldOut, 1)), 100*float64(o.Left)/float64(max(o.HeldOut, 1)))
}
