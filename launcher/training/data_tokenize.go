package training

// data tokenize: convert text to tokens once, into a file that training maps into memory.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
)

// tokenize writes the tokens of the data to --out.
func (f *dataFlags) tokenize(ctx context.Context, env cli.Env) error {
	if f.out == "" {
		return errors.New("data tokenize needs --out FILE, such as --out tokens.arrow")
	}
	tokenizer, err := f.open()
	if err != nil {
		return err
	}
	show := progressLine{to: env.ErrOut, on: system.TerminalWidth(env.ErrOut) > 0}
	begin := time.Now()
	sum, err := datasets.WriteTokens(ctx, f.out, f.data, tokenizer, f.options(), func(p datasets.TokenizeProgress) {
		show.print("%s: %s of text", p.Stage, system.Bytes(p.Bytes))
	})
	show.end()
	if err != nil {
		return err
	}
	seconds := max(time.Since(begin).Seconds(), 1e-9)
	fmt.Fprintf(env.Out, "%s: training %d tokens of %s, validation %d tokens of %s, %.2f bytes/token, %s/s\n", f.out,
		sum.Train.Tokens, report.Plural(int(sum.Train.Documents), "document"), sum.HeldOut.Tokens, report.Plural(int(sum.HeldOut.Documents), "document"),
		float64(sum.Train.Bytes+sum.HeldOut.Bytes)/float64(max(sum.Train.Tokens+sum.HeldOut.Tokens, 1)),
		system.Bytes(int64(float64(sum.Train.Bytes+sum.HeldOut.Bytes)/seconds)))
	if sum.Overlap.Removed+sum.Overlap.Left > 0 {
		fmt.Fprintf(env.Out, "overlap: %s\n", overlap(sum.Overlap))
	}
	if note := datasets.SpecialNote(tokenizer, sum.Special); note != "" {
		fmt.Fprintf(env.Out, "special: %s\n", note)
	}
	if sum.Skipped > 0 {
		fmt.Fprintf(env.Out, "skipped: %d empty, binary or generated documents\n", sum.Skipped)
	}
	if sum.Other > 0 {
		fmt.Fprintf(env.Out, "left out: %d files without rows, because the others of their folder have rows\n", sum.Other)
	}
	if sum.NUL+sum.Replaced > 0 {
		fmt.Fprintf(env.Out, "changed: %d documents without their NUL bytes; %d with U+FFFD for invalid characters\n", sum.NUL, sum.Replaced)
	}
	return nil
}

// progressLine is a line of a terminal that each update overwrites, at most ten times per second.
type progressLine struct {
	to   io.Writer
	on   bool
	last time.Time
	used bool
}

func (p *progressLine) print(format string, args ...any) {
	if now := time.Now(); p.on && now.Sub(p.last) > 100*time.Millisecond {
		p.last, p.used = now, true
		fmt.Fprintf(p.to, "\r\x1b[K"+format, args...)
	}
}

func (p *progressLine) end() {
	if p.used {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
