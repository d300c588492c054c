package checking

// verify-layouts: trains a few steps in every layout of the ranks and compares the states. Each run
// is a train command of its own, so the runs share nothing.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/save"
)

// verifyFlags are the flags of verify-layouts.
type verifyFlags struct {
	ranks      running.RankFlags
	json       string
	given      *[]cli.Assignment
	pp, cp, tp string // degrees
	schedules  string // of pipelines
}

// DefineVerifyLayouts defines the flags of verify-layouts.
func DefineVerifyLayouts(fs *flag.FlagSet) cli.Action {
	f, all := &verifyFlags{}, flag.NewFlagSet("", flag.ContinueOnError)
	f.ranks.Define(all)
	all.StringVar(&f.json, "json", "", "`FILE` write a JSON line per layout to FILE")
	f.given = cli.Bind(all, verifyDefaults)
	cli.SelectFlags(fs, all, []string{
		"np", "n", "ranks", "timeout", "json", "flavor", "steps", "seq", "batch", "micro-batch",
		"pp-stages-per-rank", "pp-overlap", "recompute", "precision", "ep-exchange", "ep-dispatch", "ep-combine-backward",
		"ep-capacity", "threads", "seed", "init-from", "tokenizer", "data", "data-field", "document-mask", "recipe", "sum", "nvfp4.", "mxfp4.",
		"fp8.", "mx.", "guard.", "optimizer.", "model.",
	})
	fs.StringVar(&f.pp, "pp", "1", "`N,...` lengths of pipelines, such as 1,2,4, or all")
	fs.StringVar(&f.cp, "cp", "1", "`N,...` ranks that share each sequence, such as 1,2, or all")
	fs.StringVar(&f.tp, "tp", "1", "`N,...` ranks that share the products of dense layers, such as 1,2, or all")
	fs.StringVar(&f.schedules, "pp-schedule", pipeline.Names()[0], "`NAME,...` schedules of the pipelines, or all")
	return cli.NoArguments(f.run)
}

// degreesOf returns the numbers of ranks along an axis that a list such as 1,2,4 names, or all that
// some ranks can have. Those along cp and tp are powers of two.
func degreesOf(axis mesh.Axis, text string, ranks int) (list []int, err error) {
	var legal []int
	for n := 1; n <= ranks; n++ {
		if ranks%n == 0 && (axis == mesh.PP || n&(n-1) == 0) {
			legal = append(legal, n)
		}
	}
	if text == "all" {
		return legal, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || !slices.Contains(legal, n) {
			return nil, fmt.Errorf("--%s is %q: of %d ranks, give some of %v, or all", axis, text, ranks, legal)
		}
		list = append(list, n)
	}
	return list, nil
}

// names returns the schedules to verify.
func (f *verifyFlags) names() (all []string, err error) {
	if f.schedules == "all" {
		return pipeline.Names(), nil
	}
	for word := range strings.SplitSeq(f.schedules, ",") {
		i := slices.IndexFunc(pipeline.Names(), func(known string) bool { return strings.EqualFold(known, word) })
		if i < 0 {
			return nil, cli.Unknown("unknown schedule", word, append(pipeline.Names(), "all"))
		}
		all = append(all, pipeline.Names()[i])
	}
	return all, nil
}

// verifyDefaults returns the default configuration of the runs.
func verifyDefaults(flavor string, steps int) (config.Config, error) {
	const fewSteps = 5
	if steps == 0 {
		steps = fewSteps
	}
	cfg, err := cli.TrainDefaults(flavor, steps)
	cfg.EvalEvery, cfg.EvalSequences, cfg.SampleTokens, cfg.SaveEvery, cfg.RecordEvery = 0, 1, 0, 0, 0
	return cfg, err
}

// Trial is a layout to verify, with the schedule of its pipeline if it has one.
type Trial struct {
	mesh.Layout
	schedule string
}

// Name returns a short name that no other trial has.
func (t Trial) Name() string {
	if t.PP > 1 {
		return t.Layout.Name() + "-" + t.schedule
	}
	return t.Layout.Name()
}

// String names the layout and the schedule.
func (t Trial) String() string {
	if t.PP > 1 {
		return t.Layout.String() + ", " + t.schedule
	}
	return t.Layout.String()
}

// configure returns the configuration of a run. cfg has the micro-batch of one rank, so that all
// runs make the same passes.
func (t Trial) configure(cfg config.Config) config.Config {
	cfg.SetLayout(t.Layout)
	cfg.PPSchedule = t.schedule
	if t.PP == 1 {
		cfg.PPStages = 0
	}
	if cfg.MicroBatch /= t.Batch(); t.Sharers() > 1 {
		cfg.MicroBatch = 0 // one sequence in each pass
	}
	return cfg
}

// trials returns what to verify, one rank first, and why it leaves out layouts.
func (f *verifyFlags) trials(cfg config.Config) (all []Trial, notes []string, err error) {
	schedules, err := f.names()
	if err != nil {
		return nil, nil, err
	}
	layouts, err := f.layouts(cfg.Model.Experts)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range layouts {
		names := schedules
		if l.PP == 1 {
			names = names[:1]
		}
		for _, name := range names {
			t := Trial{l, name}
			if err := t.fits(cfg); err != nil {
				notes = append(notes, fmt.Sprintf("not verified: %v: %v", t, err))
				continue
			}
			all = append(all, t)
		}
	}
	if len(all) == 1 && len(notes) > 0 {
		return nil, nil, errors.New(notes[0])
	}
	axes := fmt.Sprintf("axes tried: every dp_replicate, dp_shard and ep, with --pp %s, --cp %s and --tp %s (all: every length of an axis; 1: not tried)", f.pp, f.cp, f.tp)
	return all, append(notes, axes), nil
}

// layouts returns the legal layouts with the degrees of the flags, that of one rank first.
func (f *verifyFlags) layouts(experts int) (all []mesh.Layout, err error) {
	var lists [3][]int
	for i, axis := range []mesh.Axis{mesh.PP, mesh.CP, mesh.TP} {
		if lists[i], err = degreesOf(axis, []string{f.pp, f.cp, f.tp}[i], f.ranks.Count); err != nil {
			return nil, err
		}
	}
	for _, pp := range lists[0] {
		for _, cp := range lists[1] {
			for _, tp := range lists[2] {
				all = append(all, mesh.Sharing(f.ranks.Count, pp, cp, tp, experts)...)
			}
		}
	}
	if alone := mesh.Default(1); len(all) == 0 || all[0] != alone {
		all = slices.Insert(all, 0, alone)
	}
	return all, nil
}

// fits returns an error if ranks cannot share sequences, or the pipeline does not fit.
func (t Trial) fits(cfg config.Config) error {
	if t.Sharers() > 1 {
		if err := t.sharesSequences(cfg); err != nil {
			return err
		}
	}
	if t.PP == 1 {
		return nil
	}
	_, _, err := t.configure(cfg).Pipeline(t.World)
	return err
}

// sharesSequences returns an error if ranks cannot share sequences, or if results depend on the
// number of passes, which is not that of one rank.
func (t Trial) sharesSequences(cfg config.Config) error {
	precision, err := cfg.Recipe()
	if err != nil {
		return err
	}
	shared := t.configure(cfg)
	if n, alone := shared.Passes(t.World), cfg.Passes(1); n != alone && (precision.DependsOnPasses() || cfg.EPCapacity > 0) {
		return fmt.Errorf("with one sequence in a pass, a step has %d passes, and with one rank %d: results depend on it", n, alone)
	}
	return shared.CheckContext()
}

// wholeBlocks returns an error if layouts cannot agree because ranks cut blocks of numbers.
func wholeBlocks(cfg config.Config) error {
	precision, err := cfg.Recipe()
	if err != nil {
		return err
	}
	if n := precision.TokenBlock(); cfg.Seq%n != 0 {
		return fmt.Errorf("seq is %d: in %s, blocks of gradients have %d tokens, and layouts would cut them in different places: give a --seq that is a multiple of %[3]d", cfg.Seq, precision.Name, n)
	}
	return nil
}

// run trains in every layout, that of one rank first. Its state is the reference.
func (f *verifyFlags) run(ctx context.Context, env cli.Env) (err error) {
	if err := f.ranks.Check(env); err != nil {
		return err
	}
	cfg, err := cli.Resolve(verifyDefaults, "", nil, *f.given)
	if err != nil {
		return err
	}
	if err := wholeBlocks(cfg); err != nil {
		return err
	}
	cfg.ChainPasses = cfg.ChainPasses && f.cp == "1" && f.tp == "1" // slices add passes as a chain
	cfg.MicroBatch = min(cfg.MicroBatch, cfg.Batch) * f.ranks.Count // that of one rank
	trials, notes, err := f.trials(cfg)
	if err != nil {
		return err
	}
	for _, t := range trials {
		if err := t.configure(cfg).Validate(t.World); err != nil {
			return err
		}
	}
	runs := &layoutRuns{ctx: ctx, flags: f, cfg: cfg, runLine: env.RunLine}
	if runs.dir, err = os.MkdirTemp("", "verify-layouts-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(runs.dir)) }()
	fmt.Fprintf(env.Out, "%s, %s, %s of %s; SHA-256 of weights, moments and selection biases\n",
		cfg.Flavor, cfg.Precision, report.Plural(cfg.Steps, "step"), report.Plural(cfg.Batch, "sequence"))
	for _, note := range notes {
		fmt.Fprintln(env.Out, note)
	}
	var lines bytes.Buffer
	err = CompareLayouts(trials, runs, env.Out, &lines)
	if f.json != "" {
		err = errors.Join(err, system.WriteFile(f.json, lines.Bytes()))
	}
	return err
}

// layoutRuns trains a configuration in layouts. It is a [layoutTrainer].
type layoutRuns struct {
	runLine func(ctx context.Context, args []string, out, errOut io.Writer) int
	ctx     context.Context
	flags   *verifyFlags
	cfg     config.Config
	dir     string
	steps   string // the run of the reference that saved after every step; empty: none yet
}

// Train implements [layoutTrainer].
func (v *layoutRuns) Train(t Trial) (sums save.StateSums, err error) {
	out := filepath.Join(v.dir, "run")
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	if err := v.start(v.cfg, t, out); err != nil {
		return sums, err
	}
	return StateOf(stepFolder(out, v.cfg.Steps))
}

// start runs a train command in a layout.
func (v *layoutRuns) start(cfg config.Config, t Trial, out string) error {
	cfg = t.configure(cfg)
	cfg.Out = out
	text, err := config.TOML(cfg)
	if err != nil {
		return err
	}
	config := filepath.Join(v.dir, "config.toml")
	if err := system.WriteFile(config, text); err != nil {
		return err
	}
	var errs bytes.Buffer
	ranks := v.flags.ranks
	args := []string{"train", "--config", config, "--report=false", "--np", strconv.Itoa(t.World), "--ranks", ranks.Kind, "--timeout", ranks.Wait.String()}
	if code := v.runLine(v.ctx, args, io.Discard, &errs); code != cli.ExitOK {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		why := lines[len(lines)-1]
		if v.ctx.Err() != nil {
			why = "interrupted; the layouts above are compared"
		}
		return cli.Fail(fmt.Errorf("%v on %d ranks: %s", t, t.World, why), code)
	}
	return nil
}

// stepFolder returns the folder of the checkpoint that a run has saved after a step.
func stepFolder(run string, step int) string {
	return filepath.Join(run, fmt.Sprintf("step-%08d", step))
}
