package main

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
	figures "spmoe/launcher/convergence/report"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// compareFlags are the flags of compare outside the configuration.
type compareFlags struct {
	world     worldFlags
	config    string
	seeds     int
	margin    float64
	ablation  string
	jobs      int
	quick     bool
	keepState bool
	given     *[]assignment
}

func defineCompare(fs *flag.FlagSet) func(context.Context, env) error {
	return new(compareFlags).define(fs)
}

func (f *compareFlags) define(fs *flag.FlagSet) func(context.Context, env) error {
	f.world.define(fs)
	fs.StringVar(&f.config, "config", "", "`FILE` configuration in TOML; flags override it")
	fs.IntVar(&f.seeds, "seeds", 3, "`N` seeds of initial weights and data order; every precision is trained with each")
	fs.Float64Var(&f.margin, "margin", 0.5, "`PERCENT` of the baseline's loss by which a loss may differ and be equivalent")
	fs.StringVar(&f.ablation, "ablation", "", "`LIST` of precisions to run with the first seed only, outside the verdict; all: "+strings.Join(convergence.AllAblations(), ","))
	fs.IntVar(&f.jobs, "jobs", 1, "`N` runs at the same time")
	fs.BoolVar(&f.quick, "quick", false, "a small model and few steps, a minute or two on two cores: shows that all works and finds broken recipes, but says nothing of long runs")
	fs.BoolVar(&f.keepState, "keep-checkpoints", false, "keep the last checkpoint of every run")
	f.given = bind(fs, convergence.Default)
	for name, usage := range map[string]string{
		"precision": "`LIST` of precisions, the baseline first; +e5m2, +floor, +ceil, +even, +wire and +standard vary one, as in mxfp8+e5m2",
		"seed":      "`N` first seed",
		"out":       "`FOLDER` of the comparison, which goes on if it was begun there; empty: the next free runs/compare-N",
	} {
		fs.Lookup(name).Usage = usage
	}
	return f.run
}

func (f *compareFlags) run(ctx context.Context, env env) error {
	if err := f.world.check(env); err != nil {
		return err
	}
	if f.world.tag {
		return errors.New("--tag-output: ranks print nothing in a comparison: leave it out")
	}
	given, err := moreData(*f.given, env.args)
	if err != nil {
		return err
	}
	c, err := f.comparison(given)
	if err != nil {
		return err
	}
	again := commandLine(env, c.Out)
	c.Start, c.Command = f.starter(env), again
	c.Console, c.Width = env.out, system.TerminalWidth(env.out)
	if err := c.Check(); err != nil {
		return err
	}
	fmt.Fprintf(env.out, "comparing %s: %s, %s, %s each, in %s\n", c.Config.Precision, report.Plural(c.Runs(), "run"), report.Plural(c.Seeds, "seed"),
		report.Plural(c.Config.Steps, "step"), c.Out)
	result, err := c.Run(ctx)
	if errors.Is(err, trainer.ErrInterrupted) {
		fmt.Fprintf(env.out, "interrupted; to go on: %s\n", again)
		return failure{err, exitInterrupted}
	} else if err != nil {
		return failure{fmt.Errorf("%w\n  to go on: %s", err, again), exitFailed}
	}
	convergence.WriteSummary(env.out, result)
	if err := figures.Write(c.Out, result); err != nil {
		return failure{fmt.Errorf("writing the report: %w", err), exitFailed}
	}
	fmt.Fprintf(env.out, "report: %s\n", filepath.Join(c.Out, "report.html"))
	if result.Verdict() != convergence.Equivalent {
		return failure{told{errors.New("not equivalent")}, exitFailed}
	}
	return nil
}

// comparison returns what the flags ask for.
func (f *compareFlags) comparison(given []assignment) (*convergence.Comparison, error) {
	text, err := readConfig(f.config)
	if err != nil {
		return nil, err
	}
	from := convergence.Default
	if f.quick {
		from = convergence.Quick
	}
	cfg, err := configured(from, f.config, text, given)
	if err != nil {
		return nil, err
	}
	recipes, err := convergence.ParseRecipes(cfg.Precision, f.ablation)
	if err != nil {
		return nil, fmt.Errorf("--precision, --ablation: %w", err)
	}
	out := cfg.Out
	if out == "" {
		if out, err = freeRun("compare"); err != nil {
			return nil, err
		}
	}
	return &convergence.Comparison{
		Config: cfg, Ranks: f.world.ranks, Recipes: recipes, Seeds: f.seeds, Margin: f.margin / 100, Out: out, Jobs: f.jobs, KeepState: f.keepState,
	}, nil
}

// starter returns how runs are started: here if ranks are goroutines, or else in processes of the
// train command.
func (f *compareFlags) starter(env env) convergence.Start {
	return func(ctx context.Context, job *trainer.Job, s convergence.Settings) error {
		own := env
		if f.world.kind == "process" {
			ranks, err := f.processes(s, &own)
			if err != nil {
				return err
			}
			defer ranks.Close()
		}
		beside, err := besideFlags{}.start(s.Config, env)
		if err != nil {
			return err
		}
		defer beside.end()
		err = f.world.run(ctx, own, needsOf(job, s.Config.Out), nil, func(w spmd.World) error { return job.Run(ctx, w) })
		if e := (failure{}); errors.As(err, &e) && e.code == exitInterrupted {
			return trainer.ErrInterrupted
		}
		return err
	}
}

// processes turns env into that of ranks of the train command for one run. What they print on their
// standard error goes to a file in the run's folder, to be closed at the end.
func (f *compareFlags) processes(s convergence.Settings, env *env) (io.Closer, error) {
	if err := os.MkdirAll(s.Config.Out, 0o777); err != nil {
		return nil, err
	}
	args := []string{"train", "--resume", "--out", s.Config.Out, "--threads", strconv.Itoa(s.Config.Threads)}
	if s.From == "" {
		text, err := trainer.ConfigTOML(s.Config)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(s.Config.Out, "config.toml")
		if err := os.WriteFile(path, text, 0o666); err != nil {
			return nil, err
		}
		args = []string{"train", "--config", path}
	}
	env.commandLine = append(args, "--log-format", "json", "--np", strconv.Itoa(f.world.ranks), "--ranks", f.world.kind,
		"--timeout", f.world.wait.String(), "--silence", f.world.silence.String())
	log, err := os.OpenFile(filepath.Join(s.Config.Out, "ranks.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	env.out, env.errOut = &relay{to: s.Report}, log
	return log, nil
}

// relay passes on what the JSON log of a run says of its start and its steps.
type relay struct {
	to   trainer.Reporter
	rest []byte
}

// longestEvent is far above the length of a line of the log in bytes; what is longer is no event.
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
			Loss     float64
			FromStep int `json:"from_step"`
		}
		if json.Unmarshal(line, &e) != nil {
			continue // not of the log
		}
		switch e.Event {
		case "start":
			r.to.Start(trainer.Start{From: e.FromStep})
		case "step":
			r.to.Step(trainer.Step{Step: e.Step, Steps: e.Steps, Loss: e.Loss})
		}
	}
}

// commandLine returns the command that goes on with a comparison.
func commandLine(env env, out string) string {
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
