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
	"spmoe/launcher/inspecting"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
)

// verifyFlags are the flags of verify-layouts.
type verifyFlags struct {
	ranks running.RankFlags
	json  string
	given *[]cli.Assignment
	pp    inspecting.Degrees
	cp    inspecting.Degrees
	tp    inspecting.Degrees
	names inspecting.Schedules // of pipelines
	// numbers of passes to verify; nil: micro-batch says
	passes []int
}

// DefineVerifyLayouts defines the flags of verify-layouts.
func DefineVerifyLayouts(fs *flag.FlagSet) cli.Action {
	f, all := &verifyFlags{pp: inspecting.One(mesh.PP), cp: inspecting.One(mesh.CP), tp: inspecting.One(mesh.TP), names: inspecting.Schedules{pipeline.Names()[0]}}, flag.NewFlagSet("", flag.ContinueOnError)
	f.ranks.Define(all)
	all.StringVar(&f.json, "json", "", "`FILE` write a JSON line per layout to FILE")
	f.given = cli.Bind(all, verifyDefaults)
	cli.SelectFlags(fs, all, []string{
		"np", "n", "ranks", "timeout", "json", "flavor", "steps", "seq", "batch", "micro-batch", "pp-microbatches",
		"pp-stages-per-rank", "pp-overlap", "recompute", "precision", "ep-exchange", "ep-dispatch", "ep-combine-backward",
		"ep-capacity", "threads", "seed", "init-from", "tokenizer", "data", "data-field", "document-mask", "recipe", "sum", "nvfp4.", "mxfp4.",
		"fp8.", "mx.", "guard.", "optimizer.", "model.",
	})
	fs.Var(&f.pp, "pp", "`N,...` ranks of the pipelines to verify, such as 2,4; all: those of every length, and none")
	fs.Var(&f.cp, "cp", "`N,...` ranks that share each sequence, in the layouts to verify, such as 1,2,4; all: every power of two")
	fs.Var(&f.tp, "tp", "`N,...` ranks that share the products of dense layers, in the layouts to verify, such as 1,2,4; all: every power of two")
	fs.Func("passes", "`P,...` numbers of passes per step to verify in each layout, such as 1,2,4; default: one, as micro-batch says", f.setPasses)
	fs.Var(&f.names, "pp-schedule", "`NAME,...` schedules of the pipelines; all: each of them")
	return cli.NoArguments(f.run)
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

// Trial is a layout to verify, with the schedule of its pipeline if it has one, and the number of
// passes per step if it is not that of all trials.
type Trial struct {
	mesh.Layout
	schedule string
	passes   int
}

// Name returns a short name that no other trial has.
func (t Trial) Name() string { return t.named(t.Layout.Name(), "-%s", "-passes%d") }

// String names the layout, the schedule and the number of passes.
func (t Trial) String() string { return t.named(t.Layout.String(), ", %s", ", passes %d") }

// named appends the schedule and the number of passes to a name, as far as the trial has them.
func (t Trial) named(name, schedule, passes string) string {
	if t.PP > 1 {
		name += fmt.Sprintf(schedule, t.schedule)
	}
	if t.passes > 0 {
		name += fmt.Sprintf(passes, t.passes)
	}
	return name
}

// configure returns the configuration of a run. cfg has the micro-batch of one rank, so that all
// runs make the same passes, unless the trial has its own number of them.
func (t Trial) configure(cfg config.Config) config.Config {
	cfg.SetLayout(t.Layout)
	cfg.PPSchedule = t.schedule
	if t.PP == 1 {
		cfg.PPStages = 0
	}
	if t.passes > 0 {
		cfg.MicroBatch = cfg.Batch / t.passes
	}
	if cfg.MicroBatch /= t.Batch(); t.Sharers() > 1 {
		cfg.MicroBatch = 0 // one sequence in each pass
	}
	return cfg
}

// trials returns what to verify, one rank first, and why it leaves out pipelines.
func (f *verifyFlags) trials(cfg config.Config) (all []Trial, notes []string, err error) {
	layouts, err := inspecting.Layouts(f.ranks.Count, cfg.Model.Experts, &f.pp, &f.cp, &f.tp)
	if err != nil {
		return nil, nil, err
	}
	if alone := mesh.Default(1); len(layouts) == 0 || layouts[0] != alone {
		layouts = slices.Insert(layouts, 0, alone)
	}
	passes := f.passes
	if passes == nil {
		passes = []int{0}
	}
	for _, l := range layouts {
		names := f.names
		if l.PP == 1 {
			names = names[:1]
		}
		passes := passes
		if l.Sharers() > 1 {
			passes = []int{0} // one sequence in each
		}
		for _, name := range names {
			for _, n := range passes {
				t := Trial{l, name, n}
				if err := t.fits(cfg); err != nil {
					notes = append(notes, fmt.Sprintf("not verified: %v: %v", t, err))
					continue
				}
				all = append(all, t)
			}
		}
	}
	if len(all) == 1 && len(notes) > 0 {
		return nil, nil, errors.New(notes[0])
	}
	return all, notes, nil
}

// setPasses parses the numbers of passes.
func (f *verifyFlags) setPasses(text string) error {
	f.passes = nil
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return errors.New("give numbers of passes such as 1,2,4")
		}
		f.passes = append(f.passes, n)
	}
	return nil
}

// fits returns an error if the batch does not divide into the passes, or the pipeline does not fit.
func (t Trial) fits(cfg config.Config) error {
	if n := t.passes * t.Batch(); n > 0 && cfg.Batch%n != 0 {
		return fmt.Errorf("a batch of %d does not divide into passes of %d ranks", cfg.Batch, t.Batch())
	}
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

// anyPasses returns an error if the number of passes changes results, or is given twice.
func (f *verifyFlags) anyPasses(cfg config.Config) error {
	if f.passes == nil {
		return nil
	}
	precision, err := cfg.Recipe()
	switch {
	case err != nil:
		return err
	case cfg.MicroBatch > 0 || cfg.PPMicrobatches > 0:
		return errors.New("--passes says what --micro-batch and pp_microbatches say: give one of them")
	case precision.DependsOnPasses():
		return fmt.Errorf("precision %s has scales that belong to all rows of a pass, or random numbers that belong to a pass, so its results depend on the number of passes: leave out --passes", precision.Name)
	case cfg.EPCapacity > 0:
		return errors.New("ep_capacity drops tokens by their pass, so results depend on the number of passes: leave out --passes")
	}
	return nil
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

// onOneRank returns the configuration of the reference, with the passes of cfg, which has the
// micro-batch of each of some ranks.
func onOneRank(cfg config.Config, ranks int) (config.Config, error) {
	passes := cfg.PPMicrobatches
	cfg.PPMicrobatches = 0
	switch {
	case passes == 0:
		cfg.MicroBatch = min(cfg.MicroBatch, cfg.Batch) * ranks
		return cfg, nil
	case passes < 0 || cfg.Batch%(passes*ranks) != 0:
		return cfg, fmt.Errorf("batch is %d: give a multiple of the %d ranks times the %d micro-batches, %d", cfg.Batch, ranks, passes, passes*ranks)
	}
	cfg.MicroBatch = cfg.Batch / passes
	return cfg, nil
}

// run trains in every layout, that of one rank first. Its state is the reference.
func (f *verifyFlags) run(ctx context.Context, env cli.Env) (err error) {
	if err := f.ranks.Check(env); err != nil {
		return err
	}
	if env.Cluster != nil {
		return errors.New("verify-layouts starts its ranks on one host: start it without mpirun or srun")
	}
	cfg, err := cli.Resolve(verifyDefaults, "", nil, *f.given)
	if err != nil {
		return err
	}
	if err := wholeBlocks(cfg); err != nil {
		return err
	}
	if err := f.anyPasses(cfg); err != nil {
		return err
	}
	cfg.ChainPasses = cfg.ChainPasses && f.passes == nil && f.cp.One() && f.tp.One() // slices add passes as a chain
	if cfg, err = onOneRank(cfg, f.ranks.Count); err != nil {
		return err
	}
	trials, notes, err := f.trials(cfg)
	if err != nil {
		return err
	}
	for _, t := range trials {
		if err := t.configure(cfg).Validate(t.World); err != nil {
			return err
		}
	}
	lines, err := f.lines()
	if err != nil {
		return err
	}
	runs := &layoutRuns{ctx: ctx, flags: f, cfg: cfg, runLine: env.RunLine}
	if runs.dir, err = os.MkdirTemp("", "verify-layouts-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lines.Close(), os.RemoveAll(runs.dir)) }()
	fmt.Fprintf(env.Out, "%s, %s, %s of %s; SHA-256 of weights, moments and selection biases; bytes and memory against the formula\n",
		cfg.Flavor, cfg.Precision, report.Plural(cfg.Steps, "step"), report.Plural(cfg.Batch, "sequence"))
	for _, note := range notes {
		fmt.Fprintln(env.Out, note)
	}
	return CompareLayouts(trials, runs, env.Out, lines)
}

// lines opens the file of JSON lines.
func (f *verifyFlags) lines() (io.WriteCloser, error) {
	if f.json == "" {
		return nopCloser{io.Discard}, nil
	}
	return os.Create(f.json)
}

// nopCloser is a writer that needs no closing.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

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
func (v *layoutRuns) Train(t Trial) (end LayoutEnd, err error) {
	out := filepath.Join(v.dir, "run")
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	if err := v.start(v.cfg, t, out); err != nil {
		return end, err
	}
	if end.Sums, err = StateOf(stepFolder(out, v.cfg.Steps)); err != nil {
		return end, err
	}
	return end, nil
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
