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
	"spmoe/launcher/report"
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

// leftOut describes the documents and files that are not read as they are, each line with its name.
func leftOut(skipped, other, nul, replaced int) (lines [][2]string) {
	for _, l := range []struct {
		n          int
		name, what string
	}{
		{skipped, "skipped", report.Plural(skipped, "document") + ", empty, binary or generated"},
		{other, "left out", report.Plural(other, "file") + " without rows, because the others of the folder have rows"},
		{nul, "changed", report.Plural(nul, "document") + " without NUL bytes"},
		{replaced, "changed", report.Plural(replaced, "document") + " with U+FFFD for invalid characters"},
	} {
		if l.n > 0 {
			lines = append(lines, [2]string{l.name, l.what})
		}
	}
	return lines
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
		fmt.Fprintf(table, "%s\n", report.Printable(one.Source))
		if one.Weight > 0 {
			line("weight", "%g", one.Weight)
		}
		line("files", "%d", one.Files)
		line("documents", "%d", one.Documents)
		for _, l := range leftOut(int(one.Skipped), int(one.Other), int(one.NUL), int(one.Replaced)) {
			line(l[0], "%s", l[1])
		}
		if note := datasets.SpecialNote(t, one.Special); note != "" {
			line("special", "%s", note)
		}
		line("text", "%s", system.Bytes(one.Bytes))
		line("tokens", "%d by %s, %.3f bytes/token", one.Tokens, report.Printable(one.Tokenizer), float64(one.Bytes)/float64(max(one.Tokens, 1)))
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
