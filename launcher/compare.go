package main

// compare: its flags, and how it starts the runs. Package convergence has the statistics.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// compareFlags are the flags of compare that are not in the configuration.
type compareFlags struct {
	ranks     rankFlags
	seeds     seedFlags
	config    string
	sizes     string
	jobs      int
	quick     bool
	keepState bool
	vary      varyFlags
	given     *[]assignment
}

func defineCompare(fs *flag.FlagSet) action {
	return new(compareFlags).define(fs)
}

func (f *compareFlags) define(fs *flag.FlagSet) action {
	f.ranks.define(fs)
	fs.StringVar(&f.config, "config", "", "`FILE` read the configuration from the TOML file FILE; flags override it")
	f.seeds.define(fs)
	fs.StringVar(&f.sizes, "sizes", "", "`FOLDERS` train nothing: read finished comparisons of models of several sizes, joined by commas, and fit their differences against the size")
	fs.IntVar(&f.jobs, "jobs", 1, "`N` runs to train at the same time")
	fs.BoolVar(&f.quick, "quick", false, "train a small model for a few steps, 1 to 2 minutes on two cores: finds broken recipes, but does not predict long runs")
	fs.BoolVar(&f.keepState, "keep-checkpoints", false, "keep the last checkpoint of every run")
	fs.Func("vary", "`NAME=LIST` vary a setting of the runs, the baseline's value first, as in optimizer.lr=1e-3,3e-3 (repeatable: all combinations, and each of --precision if given, otherwise bf16)", f.vary.add)
	f.given = bind(fs, convergence.Default)
	f.vary.flags = fs
	for name, usage := range map[string]string{
		"precision": "`LIST` precisions to compare, the baseline first; +e5m2, +floor, +ceil, +even, +wire, +standard, +bf16-moments and +muon vary one, as in mxfp8+e5m2; bf16+null is BF16 again, with other rounding errors; +no-rht, +no-stochastic, +no-2d, +no-bf16-tail and +four-over-six vary nvfp4; a recipe file such as mine.toml is one too",
		"seed":      "`N` first seed of initial weights and data order",
		"out":       "`FOLDER` write the comparison to FOLDER, or continue the one there; empty: the next free runs/compare-N",
	} {
		fs.Lookup(name).Usage = usage
	}
	return f.run
}

// run makes the comparison, prints a summary and writes the report.
func (f *compareFlags) run(ctx context.Context, env env) error {
	if err := errors.Join(f.ranks.check(env), f.seeds.check()); err != nil {
		return err
	}
	if f.ranks.tag {
		return errors.New("--tag-output has no effect, because ranks print nothing in a comparison: leave it out")
	}
	if f.sizes != "" {
		return fitSizes(strings.Split(f.sizes, ","), env.out)
	}
	given, err := appendData(*f.given, env.args)
	if err != nil {
		return err
	}
	claim := &runClaim{wanted: f.seeds.simulate == 0, warn: env.errOut}
	defer claim.release()
	c, err := f.comparison(given, claim)
	if err != nil {
		return err
	}
	if err := c.CheckSettings(); err != nil {
		return err
	}
	c.Command = resumeCommand(env, c.Out)
	c.Start = f.starter(env)
	c.Console, c.Width = env.out, system.TerminalWidth(env.out)
	setLastWords(ctx, func() { fmt.Fprintf(env.errOut, "\nlauncher: stopped at once; to continue: %s\n", c.Command) })
	if c.Design, err = f.seeds.choose(ctx, c, env.out); err != nil {
		return stopped(c, err, env.out)
	}
	if f.seeds.simulate > 0 {
		return nil
	}
	if err := c.Check(); err != nil {
		return err
	}
	fmt.Fprintf(env.out, "comparing %s: %s, %s, %s each, in %s\n", strings.Join(append([]string{c.Config.Precision}, c.Varied...), ", "), upTo(c, report.Plural(c.Runs(), "run")),
		report.Plural(c.Design.Seeds(), "seed"), report.Plural(c.Config.Steps, "step"), c.Out)
	printBuiltinText(env.out, c.Config.Data)
	c.Looked = func(r convergence.Result) error { return writeResult(c, r) }
	result, err := c.Run(ctx)
	if err != nil {
		return stopped(c, failure{err, exitFailed}, env.out)
	}
	return f.finish(c, result, env.out)
}

// fitSizes prints how differences change with the size of the model.
func fitSizes(folders []string, out io.Writer) error {
	var results []convergence.Result
	for _, folder := range folders {
		r, err := convergence.ReadResult(folder)
		if err != nil {
			return fmt.Errorf("--sizes: %w", err)
		}
		if len(r.Arms) == 0 {
			return fmt.Errorf("--sizes: the comparison in %s has no arms", folder)
		}
		results = append(results, r)
	}
	if err := convergence.WriteSizes(out, results); err != nil {
		return fmt.Errorf("--sizes: %w", err)
	}
	return nil
}

// upTo marks a number that a comparison may fall short of.
func upTo(c *convergence.Comparison, number string) string {
	if len(c.Design.Looks) > 1 {
		return "up to " + number
	}
	return number
}

// stopped completes the error of a comparison that ended early, or of its pilot.
func stopped(c *convergence.Comparison, err error, out io.Writer) error {
	if errors.Is(err, trainer.ErrInterrupted) {
		fmt.Fprintf(out, "interrupted; to continue: %s\n", c.Command)
		return failure{err, exitInterrupted}
	}
	if f := (failure{}); errors.As(err, &f) {
		return failure{fmt.Errorf("%w\n  to continue: %s", f.err, c.Command), f.code}
	}
	return err
}

// finish prints and writes the result, and returns its verdict as an exit code.
func (f *compareFlags) finish(c *convergence.Comparison, result convergence.Result, out io.Writer) error {
	convergence.WriteSummary(out, result)
	if f.quick || result.Setup.Steps < fewSteps {
		fmt.Fprintf(out, "%s find broken recipes; they say little about longer runs\n", report.Plural(result.Setup.Steps, "step"))
	}
	if err := writeResult(c, result); err != nil {
		return err
	}
	fmt.Fprintf(out, "report: %s\n", filepath.Join(c.Out, "report.html"))
	switch result.Verdict() {
	case convergence.Different:
		return failure{reportedError{errors.New("different")}, exitFailed}
	case convergence.Undecided:
		return failure{reportedError{errors.New("undecided")}, exitUndecided}
	}
	return nil
}

// writeResult writes the result and its page. It runs after each look, so that a
// comparison that is stopped later leaves those of the last one.
func writeResult(c *convergence.Comparison, result convergence.Result) error {
	err := c.Held.Check()
	if err == nil {
		err = result.Write(c.Out)
	}
	if err != nil {
		return failure{fmt.Errorf("writing the report: %w", err), exitFailed}
	}
	return nil
}

// fewSteps is the number of steps below which a comparison says little about longer runs.
const fewSteps = 200

// comparison returns the comparison that the flags describe, and claims its folder.
func (f *compareFlags) comparison(given []assignment, claim *runClaim) (*convergence.Comparison, error) {
	text, err := readConfig(f.config)
	if err != nil {
		return nil, err
	}
	from := convergence.Default
	if f.quick {
		from = convergence.Quick
		if f.seeds.isDefault() {
			f.seeds.seeds = quickSeeds
		}
	}
	cfg, err := resolveNew(from, f.config, text, given)
	if err != nil {
		return nil, err
	}
	if cfg.RecipeFile != "" {
		return nil, errors.New("--recipe: a comparison takes recipe files among its precisions, such as --precision bf16,my.toml")
	}
	recipes, err := f.recipes(&cfg, text, given)
	if err != nil {
		return nil, err
	}
	out := cfg.Out
	if out == "" {
		out, err = claim.takeFree("compare")
	} else {
		err = claim.take(out)
	}
	if err != nil {
		return nil, err
	}
	return &convergence.Comparison{
		Config: cfg, Ranks: f.ranks.count, Recipes: recipes, Varied: f.vary.texts(),
		Out: out, Held: claim.lock, Jobs: f.jobs, KeepState: f.keepState,
	}, nil
}

// starter returns the function that starts a run: in this process if ranks are goroutines,
// otherwise in processes of the train command.
func (f *compareFlags) starter(env env) convergence.Start {
	return func(ctx context.Context, job *trainer.Job, s convergence.Settings) error {
		claim := &runClaim{wanted: true, warn: env.errOut}
		defer claim.release()
		if err := claim.take(s.Config.Out); err != nil {
			return err
		}
		if err := claim.begin(s.From); err != nil {
			return err
		}
		job.Folder = claim.lock
		runEnv := env
		if f.ranks.kind == "process" {
			ranks, err := f.processes(s, &runEnv)
			if err != nil {
				return err
			}
			defer ranks.Close()
		}
		side, err := (&sideTaskFlags{}).start(s.Config, claim.lock, env)
		if err != nil {
			return err
		}
		defer side.end()
		err = f.ranks.run(ctx, runEnv, jobResources(job, s.Config.Out), []string{"--lock", claim.lock.Identity()}, func(w spmd.World) error { return job.Run(ctx, w) })
		if e := (failure{}); errors.As(err, &e) && e.code == exitInterrupted {
			return trainer.ErrInterrupted
		}
		return err
	}
}

// processes makes env start one run as processes of the train command. Their standard error goes to
// a file in the run's folder, which the caller closes at the end.
func (f *compareFlags) processes(s convergence.Settings, env *env) (io.Closer, error) {
	args := []string{"train", "--resume", "--out", s.Config.Out, "--threads", strconv.Itoa(s.Config.Threads)}
	if s.From == "" {
		text, err := trainer.ConfigTOML(s.Config)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(s.Config.Out, "config.toml")
		if err := system.WriteFile(path, text); err != nil {
			return nil, err
		}
		args = []string{"train", "--config", path}
	}
	env.commandLine = append(args, "--log-format", "json", "--np", strconv.Itoa(f.ranks.count), "--ranks", f.ranks.kind,
		"--timeout", f.ranks.wait.String(), "--silence", f.ranks.silence.String())
	log, err := system.OpenOwn(s.Config.Out, "ranks.log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	env.out, env.errOut = &relay{to: s.Report}, log
	return log, nil
}

// relay forwards the start and the steps in a run's JSON log to a reporter.
type relay struct {
	to   trainer.Reporter
	rest []byte
}

// longestEvent is far above the length of a log line in bytes. Anything longer is not an event.
const longestEvent = 1 << 20

// Write implements [io.Writer].
func (r *relay) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for {
		line, rest, ok := bytes.Cut(r.rest, []byte("\n"))
		if !ok {
			if len(r.rest) > longestEvent {
				r.rest = nil
			}
			return len(b), nil
		}
		r.rest = rest
		var e struct {
			Event    string
			Step     int
			Steps    int
			Loss     record.Number
			FromStep int `json:"from_step"`
		}
		if json.Unmarshal(line, &e) != nil {
			continue // not a log line
		}
		switch e.Event {
		case "start":
			r.to.Start(trainer.Start{From: e.FromStep})
		case "step":
			r.to.Step(trainer.Step{Step: e.Step, Steps: e.Steps, Loss: e.Loss})
		}
	}
}

// resumeCommand returns the command line that continues a comparison.
func resumeCommand(env env, out string) string {
	words := []string{"launcher"}
	named := false
	for _, arg := range env.commandLine {
		name, isFlag := flagName(arg)
		named = named || isFlag && name == "out"
		words = append(words, report.Shell(arg))
	}
	if !named {
		words = append(words, "--out", report.Shell(out))
	}
	return strings.Join(words, " ")
}
