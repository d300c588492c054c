// Package training has the commands that train models and prepare their data.
package training

// train: its flags, the checkpoint that it continues from, and the run itself.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"spmoe/collective/heap"
	"spmoe/collective/mesh"
	"spmoe/datasets"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/running"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/save"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
)

// TrainFlags are the flags of train that are not in the configuration.
type TrainFlags struct {
	ranks   running.RankFlags
	config  string
	resume  bool
	dryRun  bool
	display running.DisplayFlags
	profile bool
	lock    string
	text    trainer.Text
	report  bool
	given   *[]cli.Assignment
	all     *flag.FlagSet

	allowChanges bool
	notes        []string // how a resumed run differs from its checkpoint
}

// DefineTrain defines the flags of train.
func DefineTrain(fs *flag.FlagSet) cli.Action {
	return new(TrainFlags).Define(fs)
}

// Define defines the flags, and returns what runs them.
func (f *TrainFlags) Define(fs *flag.FlagSet) cli.Action {
	f.ranks.Define(fs)
	fs.StringVar(&f.config, "config", "", "(run) `FILE` read the configuration from the TOML file FILE; flags override it")
	fs.BoolVar(&f.resume, "resume", false, "(saving) continue from the newest checkpoint of --out; default: of the newest run")
	fs.BoolVar(&f.allowChanges, "allow-changes", false, "(run) with --resume, go on with another precision, batch, learning rate, or other settings that change what the run computes; with --data, with other data from its start")
	fs.BoolVar(&f.dryRun, "dry-run", false, "(run) print the configuration, sizes and costs, and exit")
	cli.Choice(fs, &f.display.Format, "log-format", "(output) `FORMAT` log format", "text", "json")
	fs.BoolVar(&f.profile, "profile", false, "(output) print a breakdown of the step time at the end")
	fs.StringVar(&f.lock, "lock", "", cli.Internal+"identity of the launcher's lock of --out")
	fs.StringVar(&f.text.From, "text", "", cli.Internal+"file of the text that another process has read")
	fs.BoolVar(&f.report, "report", true, "(output) write OUT/report.html, every 30 s while the run goes on")
	f.given, f.all = cli.Bind(fs, cli.TrainDefaults), fs
	return f.run
}

// MayDiffer lists the flags outside of the configuration that may differ between ranks that mpirun
// or srun starts. A new flag is compared unless it is added here.
var MayDiffer = []string{
	"np", "n", "ranks", "bind-to", "timeout", "silence", "host-timeout", "spares", "restarts",
	"config", "set", // what they say is compared
	"log-format", "report", "lock", "text",
}

// Settings lists the flags that must be the same on all ranks, in addition to the configuration.
func (f *TrainFlags) Settings() (all []trainer.Setting) {
	f.all.VisitAll(func(of *flag.Flag) {
		if _, ok := of.Value.(*cli.Setting); !ok && !slices.Contains(MayDiffer, of.Name) {
			all = append(all, trainer.Setting{Key: "--" + of.Name, Value: of.Value.String(), Shown: strconv.Quote(of.Value.String())})
		}
	})
	return all
}

// run trains, or prints what a run would be.
func (f *TrainFlags) run(ctx context.Context, env cli.Env) (err error) {
	if err := f.ranks.Check(env); err != nil {
		return err
	}
	reporter := f.display.Open(env)
	prepared := running.HandleStop(ctx, env, "", f.ranks.Count)
	defer func() { prepared() }()
	given := *f.given
	if given, err = cli.AppendData(given, env.Args); err != nil {
		return err
	}
	late := env.Member != nil && env.Member.Late()
	claim := &running.RunClaim{Wanted: env.ReportsJob() && !f.dryRun, Warn: env.ErrOut}
	defer claim.Release()
	cfg, from, err := f.configure(given, late, env, claim)
	if err != nil {
		return withRanks(err, from, f.ranks.Count)
	}
	if from == "" && !late {
		if err := refuseRunsAsData(cfg); err != nil {
			return err
		}
	}
	if f.dryRun {
		return f.describe(cfg, from, env)
	}
	held := claim.Lock
	if f.lock != "" {
		if held, err = system.HoldFolder(cfg.Out, f.lock); err != nil {
			return err
		}
		defer held.Release()
	}
	prepared()
	prepared = running.HandleStop(ctx, env, cfg.Out, f.ranks.Count)
	if err := f.shareText(env); err != nil {
		return err
	}
	if env.Cluster == nil {
		defer f.text.To.Close()
	}
	var job *trainer.Job
	if late {
		job, err = trainer.Rejoin(cfg, f.ranks.Count, held, f.text, reporter)
	} else {
		job, err = trainer.PrepareOn(cfg, f.ranks.Count, f.ranks.Host(env), from, f.text, reporter)
	}
	if err != nil {
		return err
	}
	defer job.Close()
	if env.Cluster != nil && f.text.To != nil {
		_, _ = env.Cluster.ShareText(f.text.To) // it has one
	}
	job.Folder = held
	if end, ok := job.Complete(); ok && !late {
		f.display.Complete(env.LeaderOnly().Out, end, cfg)
		if err := job.Diverged(); err != nil {
			return cli.Fail(err, cli.ExitFailed)
		}
		return nil
	}
	if claim.Wanted {
		if err := job.CheckDisk(); err != nil {
			return err
		}
	}
	f.observe(job)
	if err := claim.Begin(from); err != nil {
		return err
	}
	return f.train(ctx, env, job, cfg, prepared)
}

// shareText decides where this process finds the text. A launcher reads it for its rank processes,
// and the first rank of a host, which the others await, for those of a cluster. Data that is not
// that of the checkpoint may begin if it is named.
func (f *TrainFlags) shareText(env cli.Env) (err error) {
	f.text.New = f.allowChanges && cli.Gives(*f.given, "Data", "DataField")
	switch cluster := env.Cluster; {
	case cluster != nil && !cluster.LeadsHost():
		f.text.From, err = cluster.ShareText(nil)
	case cluster != nil && cluster.RanksHere() > 1, env.Member == nil && f.ranks.Kind == "process":
		f.text.To, err = heap.NewFile("spmoe-text")
	}
	return err
}

// withRanks adds to an error about the layout how many ranks a checkpoint is of, if others continue
// it.
func withRanks(err error, from string, ranks int) error {
	if from == "" || !errors.As(err, new(*mesh.Error)) {
		return err
	}
	saved, failed := checkpoint.Open(from)
	if failed != nil {
		return err
	}
	defer saved.Close()
	if saved.Ranks() == ranks {
		return err
	}
	return fmt.Errorf("%w; the run had -np %d: give that to continue as before", err, saved.Ranks())
}

// observe sets what a job records besides training.
func (f *TrainFlags) observe(job *trainer.Job) {
	job.Profile, job.Notes, job.Settings = f.profile, append(job.Notes, f.notes...), f.Settings()
}

// train starts the ranks of a job that is ready, or runs those of this process. It calls prepared
// before.
func (f *TrainFlags) train(ctx context.Context, env cli.Env, job *trainer.Job, cfg config.Config, prepared func() bool) error {
	defer running.StartSideTasks(cfg, f.report, job.Folder, env).End()
	needed := running.JobResources(job, cfg.Out)
	needed.Text = f.text.To
	more := []string{"--out", cfg.Out, "--lock", job.Folder.Identity(), "--text", spmd.TextPath}
	world, err := f.ranks.Here(env, needed)
	if err != nil {
		return err
	}
	prepared()
	if world == nil {
		if err := job.Close(); err != nil { // the ranks read what they need
			return err
		}
		err = f.ranks.Launch(ctx, env, needed, more)
	} else if env.Member == nil && ctx.Err() != nil {
		err = cli.Fail(spmd.ErrNotBegun, cli.ExitInterrupted)
	} else {
		defer running.ReportStop(ctx, env, cfg.Out)()
		if err = job.Run(ctx, world); err == nil {
			err = job.Diverged()
		}
		if err != nil {
			err = cli.Fail(running.WithCheckpoint(err, env, cfg.Out), trainCode(err))
		}
	}
	if errors.Is(err, spmd.ErrNotBegun) {
		running.PrintNotBegun(env.ErrOut, cfg.Out, f.ranks.Count)
	}
	if errors.Is(err, events.ErrInterrupted) {
		return cli.Fail(err, cli.ExitInterrupted)
	}
	return err
}

// trainCode returns the exit code of a failed run.
func trainCode(err error) int {
	switch {
	case errors.As(err, new(*state.SkipError)):
		return spmd.DoNotRestart
	case errors.As(err, new(*save.UnsavedError)):
		return cli.ExitUnsaved
	case errors.As(err, new(*trainer.DisagreementError)):
		return cli.ExitUsage
	}
	return cli.ExitFailed
}

// configure resolves the configuration and finds the checkpoint to continue from, if any. A resumed
// run starts from the configuration in its checkpoint. Warnings of damaged checkpoints go to warn.
// A late process joins a run that is under way, and does not touch its checkpoints. The run's
// folder is claimed before anything in it is changed.
func (f *TrainFlags) configure(given []cli.Assignment, late bool, env cli.Env, claim *running.RunClaim) (cfg config.Config, from string, err error) {
	text, err := cli.ReadConfig(f.config)
	if err != nil {
		return cfg, "", err
	}
	resolveRun := running.ResolveNew
	if f.resume {
		resolveRun = cli.Resolve // the checkpoint has the model
	}
	if cfg, err = resolveRun(cli.TrainDefaults, f.config, text, given); err != nil {
		return cfg, "", err
	}
	if err := cfg.MakeAbsolute(); err != nil {
		return cfg, "", err
	}
	if f.allowChanges && !f.resume {
		return cfg, "", errors.New("--allow-changes is for --resume: leave it out, or add --resume")
	}
	if f.resume && f.config != "" {
		return cfg, "", errors.New("--resume takes the configuration of the checkpoint: leave --config out, and override single values with flags")
	}
	_, gone := cli.WithoutGoneKeys(text)
	f.notes = append(f.notes, gone...)
	run, err := f.claimFolder(cfg, env, claim)
	if err != nil {
		return cfg, "", err
	}
	if !f.resume {
		if cfg.Out == "" {
			cfg.Out = run
			return cfg, "", nil
		}
		if err := keepRules(&cfg, text, given); err != nil {
			return cfg, "", err
		}
		if !late {
			from, err = sameRun(cfg, env.ErrOut)
		}
		return cfg, from, err
	}
	if late {
		from, text, err = running.NewestUnverified(run)
	} else {
		from, text, err = running.NewestWhole(run, env.ErrOut)
	}
	if err != nil {
		return cfg, "", err
	}
	saved := filepath.Join(from, "config.toml")
	if cfg, err = cli.Resolve(savedDefaults, saved, text, nil); err != nil {
		return cfg, "", err
	}
	before := cfg
	cli.Apply(&cfg, given)
	if err := errors.Join(before.MakeAbsolute(), cfg.MakeAbsolute()); err != nil {
		return cfg, "", err
	}
	if !late {
		_, gone = cli.WithoutGoneKeys(text)
		f.notes = append(f.notes, gone...)
		err = f.compare(before, cfg, from)
	}
	cfg.Out = run
	return cfg, from, err
}

// keepRules sets the data rules and the end token of a run under way in cfg.Out, unless the
// configuration file or a flag sets them: the same command continues runs of earlier versions.
func keepRules(cfg *config.Config, text []byte, given []cli.Assignment) error {
	explicit, err := cli.Explicit("", text, given)
	if err != nil {
		return err
	}
	if _, text, err := running.NewestUnverified(cfg.Out); err == nil {
		saved, err := cli.Resolve(savedDefaults, "", text, nil)
		if err == nil && explicit.DataRules == 0 {
			cfg.DataRules = saved.DataRules
		}
		if err == nil && explicit.EndToken == "" {
			cfg.EndToken = saved.EndToken
		}
	}
	return nil // what else is wrong with a checkpoint shows when it is opened
}

// sameRun returns the newest checkpoint in cfg.Out if its run has exactly this configuration, so
// that repeating a command continues the run. Otherwise it returns an empty path, and a new run
// refuses a folder with checkpoints.
func sameRun(cfg config.Config, warn io.Writer) (from string, err error) {
	if _, err := checkpoint.Latest(cfg.Out); errors.Is(err, checkpoint.ErrNone) {
		return "", nil
	}
	from, text, err := running.NewestWhole(cfg.Out, warn)
	if err != nil || !SameConfig(text, cfg) {
		return "", err
	}
	return from, nil
}

// SameConfig reports whether the configuration in a checkpoint, which an earlier version may have
// written, describes this run. When a run saves does not matter.
func SameConfig(text []byte, cfg config.Config) bool {
	saved, err := cli.Resolve(savedDefaults, "", text, nil)
	if err != nil {
		return false
	}
	saved.SaveEvery, saved.SaveRetry = cfg.SaveEvery, cfg.SaveRetry
	relative := saved.MakeAbsolute() // in runs of earlier versions
	has, failed := config.TOML(saved)
	want, err := config.TOML(cfg)
	return errors.Join(relative, failed, err) == nil && bytes.Equal(has, want)
}

// savedDefaults returns the defaults of the configuration in a checkpoint. Versions that did not
// know optimizer.moments had FP32, whatever the flavor's default is now, and those without
// data_rules had the first.
func savedDefaults(flavor string, steps int) (config.Config, error) {
	cfg, err := cli.TrainDefaults(flavor, steps)
	cfg.Optimizer.Moments = moe.MomentsFP32
	cfg.DataRules = int(datasets.FirstRules)
	return cfg, err
}
