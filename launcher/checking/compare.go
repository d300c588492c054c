package checking

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

	"spmoe/launcher/cli"
	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// CompareFlags are the flags of compare that are not in the configuration.
type CompareFlags struct {
	ranks     running.RankFlags
	Seeds     seedFlags
	config    string
	sizes     string
	jobs      int
	quick     bool
	keepState bool
	vary      varyFlags
	Given     *[]cli.Assignment
}

// DefineCompare defines the flags of compare.
func DefineCompare(fs *flag.FlagSet) cli.Action {
	return new(CompareFlags).Define(fs)
}

// Define defines the flags, and returns what runs them.
func (f *CompareFlags) Define(fs *flag.FlagSet) cli.Action {
	f.ranks.Define(fs)
	fs.StringVar(&f.config, "config", "", "(run) `FILE` read the configuration from the TOML file FILE; flags override it")
	f.Seeds.define(fs)
	fs.StringVar(&f.sizes, "sizes", "", "`FOLDERS` train nothing: read finished comparisons of models of several sizes, joined by commas, and fit their differences against the size")
	fs.IntVar(&f.jobs, "jobs", 1, "`N` runs to train at the same time")
	fs.BoolVar(&f.quick, "quick", false, "train a small model for a few steps, 1 to 2 minutes on two cores: finds broken recipes, but does not predict long runs")
	fs.BoolVar(&f.keepState, "keep-checkpoints", false, "keep the last checkpoint of every run")
	fs.Func("vary", "`NAME=LIST` vary a setting of the runs, the baseline's value first, as in optimizer.lr=1e-3,3e-3 (repeatable: all combinations, and each of --precision if given, otherwise bf16)", f.vary.add)
	f.Given = cli.Bind(fs, convergence.Default)
	f.vary.flags = fs
	for name, usage := range map[string]string{
		"precision": "`LIST` precisions to compare, the baseline first; +e5m2, +floor, +ceil, +even, +wire, +standard, +h100, +h100-nopromotion, +b200, +bf16-moments and +muon vary one, as in mxfp8+e5m2; bf16+null is BF16 again, with other rounding errors; +no-rht, +no-stochastic, +no-2d, +no-bf16-tail and +four-over-six vary nvfp4; +forward-only, +dgrad-only, +wgrad-only, +hadamard, +rht and +stochastic vary mxfp4-e2m1; a recipe file such as mine.toml is one too",
		"seed":      "`N` first seed of initial weights and data order",
		"out":       "`FOLDER` write the comparison to FOLDER, or continue the one there; empty: the next free runs/compare-N",
	} {
		fs.Lookup(name).Usage = usage
	}
	return f.run
}

// run makes the comparison, prints a summary and writes the report.
func (f *CompareFlags) run(ctx context.Context, env cli.Env) error {
	if err := errors.Join(f.ranks.Check(env), f.Seeds.check()); err != nil {
		return err
	}
	if f.ranks.Tag {
		return errors.New("--tag-output has no effect, because ranks print nothing in a comparison: leave it out")
	}
	if f.sizes != "" {
		return fitSizes(strings.Split(f.sizes, ","), env.Out)
	}
	given, err := cli.AppendData(*f.Given, env.Args)
	if err != nil {
		return err
	}
	claim := &running.RunClaim{Wanted: f.Seeds.simulate == 0, Warn: env.ErrOut}
	defer claim.Release()
	c, err := f.Comparison(given, claim)
	if err != nil {
		return err
	}
	if err := c.CheckSettings(); err != nil {
		return err
	}
	c.Command = resumeCommand(env, c.Out)
	c.Start = f.starter(env)
	c.Console, c.Width = env.Out, system.TerminalWidth(env.Out)
	if f.Seeds.simulate == 0 {
		running.SetLastWords(ctx, func() { fmt.Fprintf(env.ErrOut, "\nlauncher: stopped at once; to continue: %s\n", c.Command) })
	}
	if c.Design, err = f.Seeds.Choose(ctx, c, env.Out); err != nil {
		return stopped(c, err, env.Out)
	}
	if f.Seeds.simulate > 0 {
		return nil
	}
	if err := c.Check(); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "comparing %s: %s, %s, %s each, in %s\n", strings.Join(append([]string{c.Config.Precision}, c.Varied...), ", "), upTo(c, report.Plural(c.Runs(), "run")),
		report.Plural(c.Design.Seeds(), "seed"), report.Plural(c.Config.Steps, "step"), c.Out)
	running.PrintBuiltinText(env.Out, c.Config.Data)
	c.Looked = func(r convergence.Result) error { return writeResult(c, r) }
	result, err := c.Run(ctx)
	if err != nil {
		return stopped(c, cli.Fail(err, cli.ExitFailed), env.Out)
	}
	return f.finish(c, result, env.Out)
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
	if errors.Is(err, events.ErrInterrupted) {
		fmt.Fprintf(out, "interrupted; to continue: %s\n", c.Command)
		return cli.Fail(err, cli.ExitInterrupted)
	}
	if f := (cli.Failure{}); errors.As(err, &f) {
		return cli.Fail(fmt.Errorf("%w\n  to continue: %s", f.Err, c.Command), f.Code)
	}
	return err
}

// finish prints and writes the result, and returns its verdict as an exit code.
func (f *CompareFlags) finish(c *convergence.Comparison, result convergence.Result, out io.Writer) error {
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
		return cli.Fail(cli.Reported(errors.New("different")), cli.ExitFailed)
	case convergence.Undecided:
		return cli.Fail(cli.Reported(errors.New("undecided")), cli.ExitUndecided)
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
		return cli.Fail(fmt.Errorf("writing the report: %w", err), cli.ExitFailed)
	}
	return nil
}

// fewSteps is the number of steps below which a comparison says little about longer runs.
const fewSteps = 200

// Comparison returns the comparison that the flags describe, and claims its folder.
func (f *CompareFlags) Comparison(given []cli.Assignment, claim *running.RunClaim) (*convergence.Comparison, error) {
	text, err := cli.ReadConfig(f.config)
	if err != nil {
		return nil, err
	}
	from := convergence.Default
	if f.quick {
		from = convergence.Quick
		if f.Seeds.isDefault() {
			f.Seeds.seeds = quickSeeds
		}
	}
	cfg, err := running.ResolveNew(from, f.config, text, given)
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
		out, err = claim.TakeFree("compare")
	} else {
		err = claim.Take(out)
	}
	if err != nil {
		return nil, err
	}
	return &convergence.Comparison{
		Config: cfg, Ranks: f.ranks.Count, Recipes: recipes, Varied: f.vary.texts(),
		Out: out, Held: claim.Lock, Jobs: f.jobs, KeepState: f.keepState,
	}, nil
}

// starter returns the function that starts a run: in this process if ranks are goroutines,
// otherwise in processes of the train command.
func (f *CompareFlags) starter(env cli.Env) convergence.Start {
	return func(ctx context.Context, job *trainer.Job, s convergence.Settings) error {
		claim := &running.RunClaim{Wanted: true, Warn: env.ErrOut}
		defer claim.Release()
		if err := claim.Take(s.Config.Out); err != nil {
			return err
		}
		if err := claim.Begin(s.From); err != nil {
			return err
		}
		job.Folder = claim.Lock
		runEnv := env
		if f.ranks.Kind == "process" {
			ranks, err := f.processes(s, &runEnv)
			if err != nil {
				return err
			}
			defer ranks.Close()
		}
		side, err := (&running.SideTaskFlags{}).Start(s.Config, claim.Lock, env)
		if err != nil {
			return err
		}
		defer side.End()
		err = f.ranks.Run(ctx, runEnv, running.JobResources(job, s.Config.Out), []string{"--lock", claim.Lock.Identity()}, func(w spmd.World) error { return job.Run(ctx, w) })
		if e := (cli.Failure{}); errors.As(err, &e) && e.Code == cli.ExitInterrupted {
			return events.ErrInterrupted
		}
		return err
	}
}

// processes makes env start one run as processes of the train command. Their standard error goes to
// a file in the run's folder, which the caller closes at the end.
func (f *CompareFlags) processes(s convergence.Settings, env *cli.Env) (io.Closer, error) {
	args := []string{"train", "--resume", "--out", s.Config.Out, "--threads", strconv.Itoa(s.Config.Threads)}
	if s.From == "" {
		text, err := config.TOML(s.Config)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(s.Config.Out, "config.toml")
		if err := system.WriteFile(path, text); err != nil {
			return nil, err
		}
		args = []string{"train", "--config", path}
	}
	env.CommandLine = append(args, "--log-format", "json", "--np", strconv.Itoa(f.ranks.Count), "--ranks", f.ranks.Kind,
		"--timeout", f.ranks.Wait.String(), "--silence", f.ranks.Silence.String())
	log, err := system.OpenOwn(s.Config.Out, "ranks.log", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	env.Out, env.ErrOut = &Relay{To: s.Report}, log
	return log, nil
}

// Relay forwards the start and the steps in a run's JSON log to a reporter.
type Relay struct {
	To   events.Reporter
	Rest []byte
}

// longestEvent is far above the length of a log line in bytes. Anything longer is not an event.
const longestEvent = 1 << 20

// Write implements [io.Writer].
func (r *Relay) Write(b []byte) (int, error) {
	r.Rest = append(r.Rest, b...)
	for {
		line, rest, ok := bytes.Cut(r.Rest, []byte("\n"))
		if !ok {
			if len(r.Rest) > longestEvent {
				r.Rest = nil
			}
			return len(b), nil
		}
		r.Rest = rest
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
			r.To.Start(events.Start{From: e.FromStep})
		case "step":
			r.To.Step(events.Step{Step: e.Step, Steps: e.Steps, Loss: e.Loss})
		}
	}
}

// resumeCommand returns the command line that continues a comparison.
func resumeCommand(env cli.Env, out string) string {
	words := []string{"launcher"}
	named := false
	for _, arg := range env.CommandLine {
		name, isFlag := cli.FlagName(arg)
		named = named || isFlag && name == "out"
		words = append(words, report.Shell(arg))
	}
	if !named {
		words = append(words, "--out", report.Shell(out))
	}
	return strings.Join(words, " ")
}
