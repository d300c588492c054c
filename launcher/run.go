package main

// run: a whole run from a run file. A corpus becomes a tokenizer, tokens, a trained model, an
// evaluation, a sample, an exported model and a page. The same command continues an interrupted
// run.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/report"
	"spmoe/launcher/runfile"
	"spmoe/launcher/stages"
	"spmoe/launcher/system"
)

// runFlags are the flags of run.
type runFlags struct {
	data  []string
	field string
	out   string
	ranks int
	plain bool
}

func defineRun(fs *flag.FlagSet) action {
	f := &runFlags{}
	fs.Func("data", "`PATH` text to train on instead of the file's, as in data tokenize (repeatable)", func(path string) error {
		f.data = append(f.data, path)
		return nil
	})
	fs.StringVar(&f.field, "data-field", "", "`NAME` field or column with the text in JSONL, Parquet and Arrow files; empty: the file's")
	fs.StringVar(&f.out, "out", "", "`FOLDER` write the run to FOLDER, or continue the one there; empty: the file's")
	defineRankCount(fs, &f.ranks, 0)
	fs.Lookup("np").Usage = "`N` ranks to start; 0: the file's"
	fs.BoolVar(&f.plain, "plain", false, "print log lines instead of the live view on a terminal")
	return f.run
}

func (f *runFlags) run(ctx context.Context, env env) error {
	if len(env.args) != 1 {
		return fmt.Errorf("run takes one run file, but was given %q: give its path, and each path of --data with a --data of its own", env.args)
	}
	r, err := f.read(env.args[0])
	if err != nil {
		return err
	}
	r.env = env
	if err := r.identify(ctx); err != nil {
		return r.stopped(ctx, err)
	}
	claim := &runClaim{wanted: true, warn: env.errOut}
	defer claim.release()
	if err := claim.take(r.file.Out); err != nil {
		return err
	}
	if r.job, err = stages.Open(r.file.Out, r.tell); err != nil {
		return err
	}
	r.job.Held = claim.lock
	if err := r.all(ctx); err != nil {
		return r.stopped(ctx, err)
	}
	r.summary(env.out)
	if reached := r.reached(); r.file.Expected.Missed(reached) {
		return failure{reportedError{errors.New("the loss is worse than expected")}, exitFailed}
	}
	return nil
}

// fileRun is a run of a run file under way.
type fileRun struct {
	env   env
	text  []byte // of the run file
	file  runfile.File
	train []byte // configuration of the training stage, without its data and its folder
	plain bool
	job   *stages.Job
	done  results
}

// read returns the run that a file and the flags describe, after checking all of it.
func (f *runFlags) read(path string) (*fileRun, error) {
	text, err := system.ReadFile(path, stricttoml.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("%w: give a run file, such as docs/recipes/five-minutes-2-cores.toml", err)
	}
	r := &fileRun{text: text, plain: f.plain}
	if r.file, r.train, err = runfile.Parse(text); err != nil {
		return nil, locate(path, err)
	}
	if len(f.data) > 0 {
		r.file.Corpus.Data = f.data
	}
	if f.field != "" {
		r.file.Corpus.Field = f.field
	}
	if f.out != "" {
		r.file.Out = f.out
	}
	if f.ranks != 0 {
		r.file.Ranks = f.ranks
	}
	cfg, err := resolve(trainDefaults, path, r.train, nil)
	if err == nil {
		err = cfg.Validate(r.file.Ranks)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, section train: %w", path, err)
	}
	return r, nil
}

// tell prints what happens to a stage.
func (r *fileRun) tell(stage, what string) {
	if what != "" {
		what = ": " + what
	}
	fmt.Fprintf(r.env.out, "-- %s%s\n", stage, what)
}

// write writes a file of the run.
func (r *fileRun) write(name string, content []byte) error {
	if err := r.job.Held.Check(); err != nil {
		return err
	}
	return system.WriteFile(r.in(name), content)
}

// in returns the path of a file of the run.
func (r *fileRun) in(name string) string { return filepath.Join(r.file.Out, name) }

// stopped completes the error of a run that ended early.
func (r *fileRun) stopped(ctx context.Context, err error) error {
	again := "launcher " + shellWords(r.env.commandLine)
	if codeOf(err) == exitInterrupted || ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		fmt.Fprintf(r.env.out, "interrupted; to continue: %s\n", again)
		return failure{err, exitInterrupted}
	}
	if f := (failure{}); errors.As(err, &f) {
		return failure{fmt.Errorf("%w\n  to continue: %s", err, again), f.code}
	}
	return err
}

// shellWords quotes the words of a command line.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = report.Shell(w)
	}
	return strings.Join(quoted, " ")
}

// summary prints what the run was expected to reach and what it has reached.
func (r *fileRun) summary(out io.Writer) {
	fmt.Fprintf(out, "\n%-22s%14s%14s\n", "", "expected", "reached")
	for _, row := range r.file.Expected.Rows(r.reached()) {
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("%-22s%14s%14s  %s", row.Name, row.Expected, row.Reached, row.Verdict), " "))
	}
	fmt.Fprintf(out, "%s\nreport: %s\n", r.file.Expected.About(), r.in(pageFile))
	fmt.Fprintf(out, "to generate text: launcher generate --checkpoint %s --prompt TEXT\n", report.Shell(r.in(modelFolder)))
}
