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
	sum, err := datasets.WriteTokens(ctx, f.out, f.data, tokenizer, f.options(), func(p datasets.TokenizeProgress) {
		if time.Since(told) > tellEvery {
			told = time.Now()
			fmt.Fprintf(env.ErrOut, "launcher: %s: %s of text\n", p.Stage, system.Bytes(p.Bytes))
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
	for _, l := range []struct {
		n    int64
		what string
	}{
		{int64(sum.Skipped), "documents left out: empty, binary or generated"},
		{int64(sum.Other), "files left out: without rows, in folders with rows"},
		{int64(sum.NUL), "documents changed: NUL bytes left out"},
		{int64(sum.Replaced), "documents changed: U+FFFD for invalid characters"},
	} {
		if l.n > 0 {
			fmt.Fprintf(env.Out, "%d %s\n", l.n, l.what)
		}
	}
	return nil
}
