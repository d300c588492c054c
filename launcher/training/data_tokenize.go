package training

// data tokenize: convert text to tokens once, into a file that training maps into memory.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
)

// tellEvery is the time between lines about the progress.
const tellEvery = 10 * time.Second

// tokenize writes the tokens of the data to --out.
func (f *dataFlags) tokenize(ctx context.Context, env cli.Env) error {
	if f.out == "" {
		return errors.New("data tokenize needs --out FILE, such as --out tokens.arrow")
	}
	tokenizer, err := f.open()
	if err != nil {
		return err
	}
	begin, told := time.Now(), time.Now()
	sum, err := datasets.WriteTokens(ctx, f.out, f.data, tokenizer, f.options(), func(stage string, done int64) {
		if time.Since(told) > tellEvery {
			told = time.Now()
			fmt.Fprintf(env.ErrOut, "launcher: %s: %s of text\n", stage, system.Bytes(done))
		}
	})
	if err != nil {
		return err
	}
	seconds := max(time.Since(begin).Seconds(), 1e-9)
	fmt.Fprintf(env.Out, "%s: training %d tokens of %s, validation %d tokens of %s, %.2f bytes/token, %s/s\n", f.out,
		sum.Train.Tokens, report.Plural(int(sum.Train.Documents), "document"), sum.HeldOut.Tokens, report.Plural(int(sum.HeldOut.Documents), "document"),
		float64(sum.Train.Bytes+sum.HeldOut.Bytes)/float64(max(sum.Train.Tokens+sum.HeldOut.Tokens, 1)),
		system.Bytes(int64(float64(sum.Train.Bytes+sum.HeldOut.Bytes)/seconds)))
	if note := datasets.SpecialNote(tokenizer, sum.Special); note != "" {
		fmt.Fprintf(env.Out, "special: %s\n", note)
	}
	for _, line := range leftOut(sum.Losses) {
		fmt.Fprintf(env.Out, "%s: %s\n", line[0], line[1])
	}
	return nil
}

// leftOut describes the documents and files that are not read as they are, each line with its name.
func leftOut(l datasets.Losses) (lines [][2]string) {
	if l.Skipped > 0 {
		lines = append(lines, [2]string{"skipped", report.Plural(l.Skipped, "document") + ", empty, binary or generated"})
	}
	if l.Other > 0 {
		lines = append(lines, [2]string{"left out", report.Plural(l.Other, "file") + " without rows, because the others of the folder have rows"})
	}
	if l.NUL > 0 {
		lines = append(lines, [2]string{"changed", report.Plural(l.NUL, "document") + " without NUL bytes"})
	}
	if l.Replaced > 0 {
		lines = append(lines, [2]string{"changed", report.Plural(l.Replaced, "document") + " with U+FFFD for invalid characters"})
	}
	return lines
}
