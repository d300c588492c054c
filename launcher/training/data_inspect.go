package training

// data inspect: the amounts of each source.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/system"
)

func (f *dataFlags) inspect(ctx context.Context, env cli.Env) error {
	tokenizer, err := f.open()
	if err != nil {
		return err
	}
	all, err := datasets.Inspect(ctx, f.data, tokenizer, f.options())
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
		line("documents", "%d (%d more skipped: empty or binary)", one.Documents, one.Skipped)
		if one.NUL+one.Replaced > 0 {
			line("changed", "%d documents without their NUL bytes; %d with U+FFFD for invalid characters", one.NUL, one.Replaced)
		}
		if note := datasets.SpecialNote(t, one.Special); note != "" {
			line("special", "%s", note)
		}
		line("text", "%s", system.Bytes(one.Bytes))
		line("tokens", "%d by %s, %.3f bytes/token", one.Tokens, cli.Printable(one.Tokenizer), float64(one.Bytes)/float64(max(one.Tokens, 1)))
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
