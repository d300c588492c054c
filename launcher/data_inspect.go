package main

// data inspect: statistics of each source, and samples.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"spmoe/datasets"
	"spmoe/launcher/system"
)

func (f *dataFlags) inspect(ctx context.Context, env env) error {
	if f.samples < 0 {
		return fmt.Errorf("--samples is %d: give 0 or more", f.samples)
	}
	tokenizer, err := datasets.OpenTokenizer(f.tokenizer)
	if err != nil {
		return err
	}
	all, err := datasets.Inspect(ctx, f.data, tokenizer, datasets.Options{Field: f.field}, f.samples)
	if err != nil {
		return err
	}
	if f.json {
		out := json.NewEncoder(env.out)
		out.SetIndent("", "  ")
		return out.Encode(all)
	}
	return printInspections(env.out, all)
}

func printInspections(out io.Writer, all []datasets.Inspection) error {
	for i, one := range all {
		if i > 0 {
			fmt.Fprintln(out)
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		line := func(name, format string, args ...any) {
			fmt.Fprintf(table, "  %s\t"+format+"\n", append([]any{name}, args...)...)
		}
		fmt.Fprintf(table, "%s\n", legible(one.Source))
		if one.Weight > 0 {
			line("weight", "%g", one.Weight)
		}
		line("files", "%d", one.Files)
		line("documents", "%d (%d equal to one before; %d more left out: empty or binary)", one.Documents, one.Duplicates, one.Skipped)
		line("text", "%s", system.Bytes(one.Bytes))
		line("tokens", "%d by %s, %.3f bytes each", one.Tokens, legible(one.Tokenizer), one.BytesPerToken)
		q := one.Lengths
		line("length", "%d to %d %s; 10 %% up to %d, half up to %d, 90 %% up to %d, 99 %% up to %d", q.Min, q.Max, one.Unit, q.P10, q.Median, q.P90, q.P99)
		line("held out", "%.2f %%", 100*one.HeldOut)
		if err := table.Flush(); err != nil {
			return err
		}
		for _, s := range one.Samples {
			fmt.Fprintf(out, "  --- %s\n", legible(s.Name))
			for text := range strings.Lines(s.Text) {
				fmt.Fprintf(out, "  | %s\n", legible(strings.TrimSuffix(text, "\n")))
			}
		}
	}
	return nil
}

// legible is a line of text without what a terminal obeys.
func legible(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, text)
}
