package main

// train: its flags, the checkpoint that it continues from, and the run itself.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
	"spmoe/moe"
)

// trainFlags are the flags of train that are not in the configuration.
type trainFlags struct {
	ranks   rankFlags
	config  string
	resume  bool
	dryRun  bool
	display displayFlags
	profile bool
	cpuFile string
	trace   string
	ratios  bool
	project string
	lock    string
	side    sideTaskFlags
	given   *[]assignment
	all     *flag.FlagSet

	allowChanges bool
	notes        []string // how a resumed run differs from its checkpoint
}

func defineTrain(fs *flag.FlagSet) action {
	return new(trainFlags).define(fs)
}

func (f *trainFlags) define(fs *flag.FlagSet) action {
	f.ranks.define(fs)
	fs.StringVar(&f.config, "config", "", "`FILE` read the configuration from the TOML file FILE; flags override it")
	fs.BoolVar(&f.resume, "resume", false, "continue from the newest checkpoint of --out; default: of the newest run")
	fs.BoolVar(&f.allowChanges, "allow-changes", false, "with --resume, go on with another precision, batch, learning rate, or other settings that change what the run computes")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print the configuration, sizes and costs, and exit")
	fs.StringVar(&f.display.format, "log-format", "text", "`FORMAT` log format: text or json")
	fs.BoolVar(&f.display.plain, "plain", false, "print log lines instead of the live view on a terminal")
	fs.StringVar(&f.display.color, "color", "auto", "`WHEN` color the output: auto (on a terminal, unless NO_COLOR is set), always or never")
	fs.BoolVar(&f.display.relay, "relay", false, internal+"send events to the launcher, which shows them")
	fs.BoolVar(&f.profile, "profile", false, "print a breakdown of the step time at the end")
	fs.StringVar(&f.cpuFile, "cpuprofile", "", "`FILE` write a CPU profile for go tool pprof to FILE")
	fs.StringVar(&f.trace, "trace", "", "`steps=A..B` write a Perfetto timeline of steps A to B to OUT/trace.json")
	fs.BoolVar(&f.ratios, "record-ratios", false, "measure routing and the breakdown of time, and write OUT/ratios.json for project --ratios")
	fs.StringVar(&f.lock, "lock", "", internal+"identity of the launcher's lock of --out")
	fs.StringVar(&f.project, "project", "", "`GPU` afterwards, project the 671B model onto 256 of these GPUs, with this run's routing")
	f.side.define(fs)
	f.given, f.all = bind(fs, trainDefaults), fs
	return f.run
}

// mayDiffer lists the flags outside of the configuration that may differ between ranks that mpirun
// or srun starts. A new flag is compared unless it is added here.
var mayDiffer = []string{
	"np", "n", "ranks", "tag-output", "bind-to", "get-stack-traces", "heap-mib", "timeout", "silence", "host-timeout", "spares", "restarts",
	"config", // what it says is compared
	"log-format", "plain", "color", "relay", "cpuprofile", "report", "http", "http-stay", "http-pprof", "lock",
}

// settings lists the flags that must be the same on all ranks, in addition to the configuration.
func (f *trainFlags) settings() (all []trainer.Setting) {
	f.all.VisitAll(func(of *flag.Flag) {
		if _, ok := of.Value.(*setting); !ok && !slices.Contains(mayDiffer, of.Name) {
			all = append(all, trainer.Setting{Key: "--" + of.Name, Value: of.Value.String(), Shown: strconv.Quote(of.Value.String())})
		}
	})
	return all
}

// run trains, or prints what a run would be.
func (f *trainFlags) run(ctx context.Context, env env) error {
	return f.side.wait(ctx, f.runJob(ctx, env), env)
}

// runJob is run, except that nothing stays.
func (f *trainFlags) runJob(ctx context.Context, env env) error {
	if err := f.ranks.check(env); err != nil {
		return err
	}
	shown, err := f.display.open(env, f.ranks)
	if err != nil {
		return err
	}
	defer shown.close()
	prepared := handleStop(ctx, shown, env, "", f.ranks.count)
	defer func() { prepared() }()
	given := *f.given
	if given, err = appendData(given, env.args); err != nil {
		return err
	}
	late := env.member != nil && env.member.Late()
	claim := &runClaim{wanted: env.reportsJob() && !f.dryRun, warn: env.errOut}
	defer claim.release()
	cfg, from, err := f.configure(given, late, env.errOut, claim)
	if err != nil {
		return err
	}
	if from == "" && !late {
		if err := refuseOutInData(cfg); err != nil {
			return err
		}
	}
	if f.dryRun {
		return f.describe(cfg, from, env)
	}
	if err := checkProjection(f.project, cfg); err != nil {
		return err
	}
	held := claim.lock
	if f.lock != "" {
		if held, err = system.HoldFolder(cfg.Out, f.lock); err != nil {
			return err
		}
		defer held.Release()
	}
	shown.log.recordLoss(cfg.Out, held)
	prepared()
	prepared = handleStop(ctx, shown, env, cfg.Out, f.ranks.count)
	var job *trainer.Job
	if late {
		job, err = trainer.Rejoin(cfg, f.ranks.count, held, shown.Reporter)
	} else {
		job, err = trainer.PrepareOn(cfg, f.ranks.count, f.ranks.host(env), from, shown.Reporter)
	}
	if err != nil {
		return err
	}
	defer job.Close()
	job.Folder = held
	if end, ok := job.Complete(); ok && !late {
		f.display.complete(env.leaderOnly().out, end, cfg)
		if err := job.Diverged(); err != nil {
			return failure{err, exitFailed}
		}
		return nil
	}
	if claim.wanted {
		if err := job.CheckDisk(); err != nil {
			return err
		}
	}
	if err := f.observe(job, cfg); err != nil {
		return err
	}
	if err := claim.begin(from); err != nil {
		return err
	}
	return f.train(ctx, env, shown, job, cfg, prepared)
}

// observe sets what a job records besides training.
func (f *trainFlags) observe(job *trainer.Job, cfg trainer.Config) (err error) {
	job.Profile, job.Notes, job.Settings = f.profile, append(job.Notes, f.notes...), f.settings()
	if f.ratios || f.project != "" {
		if l, err := cfg.Layout(f.ranks.count); err == nil && l.Replicas() > 1 {
			return fmt.Errorf("--record-ratios and --project measure an exchange among all ranks of a stage, but the layout is %v: leave them out, or give --dp-replicate 1 --ep %d", l, l.Batch())
		}
		job.Routing = routingMeters(cfg, job.Folder)
	}
	if job.Trace, err = parseWindow(f.trace); err == nil && job.Trace.Last > cfg.Steps {
		err = fmt.Errorf("--trace is %q, but the run has %s: give steps of the run", f.trace, report.Plural(cfg.Steps, "step"))
	}
	return err
}

// train starts the ranks of a job that is ready, or runs those of this process. It calls prepared
// before.
func (f *trainFlags) train(ctx context.Context, env env, shown display, job *trainer.Job, cfg trainer.Config, prepared func() bool) error {
	side, err := f.side.start(cfg, job.Folder, shown.env)
	if err != nil {
		return err
	}
	defer side.end()
	needed := jobResources(job, cfg.Out)
	more := append(shown.ranks, "--out", cfg.Out, "--lock", job.Folder.Identity())
	world, err := f.ranks.here(shown.env, needed)
	if err != nil {
		return err
	}
	prepared()
	if world == nil {
		if err := job.Close(); err != nil { // the ranks read what they need
			return err
		}
		err = f.ranks.launch(ctx, shown.env, needed, more)
	} else {
		err = f.runHere(ctx, env, job, world, cfg.Out)
	}
	if errors.Is(err, spmd.ErrNotBegun) {
		printNotBegun(shown.env.errOut, cfg.Out, f.ranks.count)
	}
	if errors.Is(err, trainer.ErrInterrupted) {
		return failure{err, exitInterrupted}
	}
	if err == nil && f.project != "" && env.reportsJob() {
		err = projectRun(shown.env.out, f.project, cfg.Out)
	}
	return err
}

// runHere runs the ranks of this process.
func (f *trainFlags) runHere(ctx context.Context, env env, job *trainer.Job, world spmd.World, folder string) error {
	stop, err := startProfile(profilePath(f.cpuFile, env))
	if err != nil {
		return err
	}
	if env.member == nil && ctx.Err() != nil {
		return failure{errors.Join(spmd.ErrNotBegun, stop()), exitInterrupted}
	}
	cancel := reportStop(ctx, env, folder)
	defer cancel()
	if err = errors.Join(job.Run(ctx, world), stop()); err == nil {
		err = job.Diverged()
	}
	if err != nil {
		return failure{withCheckpoint(err, env, folder), trainCode(err)}
	}
	return nil
}

// parseWindow parses --trace: steps=5..7, steps=5, or empty.
func parseWindow(text string) (w trainer.Window, err error) {
	if text == "" {
		return w, nil
	}
	steps, ok := strings.CutPrefix(text, "steps=")
	if w, valid := parseSteps(steps); ok && valid {
		return w, nil
	}
	return w, fmt.Errorf("--trace is %q: give steps=5..7, for steps 5 to 7, or steps=5", text)
}

// parseSteps parses a range of steps: 5..7, or 5.
func parseSteps(text string) (w trainer.Window, ok bool) {
	first, last, both := strings.Cut(text, "..")
	if !both {
		last = first
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(last)
	return trainer.Window{First: a, Last: b}, errA == nil && errB == nil && a >= 1 && b >= a
}

// trainCode returns the exit code of a failed run.
func trainCode(err error) int {
	switch {
	case errors.As(err, new(*trainer.SkipError)):
		return spmd.DoNotRestart
	case errors.As(err, new(*trainer.UnsavedError)):
		return exitUnsaved
	case errors.As(err, new(*trainer.DisagreementError)):
		return exitUsage
	}
	return exitFailed
}

// profilePath returns the file of a rank's CPU profile. Each process writes a file of its own.
func profilePath(path string, env env) string {
	if path == "" || env.member == nil {
		return path
	}
	return fmt.Sprintf("%s.rank%d", path, env.member.Number())
}

// startProfile begins a CPU profile unless path is empty. stop completes the file.
func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// appendData adds the arguments to --data if it was given, so that --data takes several paths.
func appendData(given []assignment, args []string) ([]assignment, error) {
	if len(args) == 0 {
		return given, nil
	}
	for _, a := range given {
		if a.value.Type() == reflect.TypeFor[[]string]() {
			return append(given, assignment{a.field, reflect.ValueOf(args)}), nil
		}
	}
	return nil, fmt.Errorf("unexpected argument %q (only --data takes several values; --help lists the flags)", strings.Join(args, " "))
}

// configure resolves the configuration and finds the checkpoint to continue from, if any. A resumed
// run starts from the configuration in its checkpoint. Warnings of damaged checkpoints go to warn.
// A late process joins a run that is under way, and does not touch its checkpoints. The run's
// folder is claimed before anything in it is changed.
func (f *trainFlags) configure(given []assignment, late bool, warn io.Writer, claim *runClaim) (cfg trainer.Config, from string, err error) {
	text, err := readConfig(f.config)
	if err != nil {
		return cfg, "", err
	}
	resolveRun := resolveNew
	if f.resume {
		resolveRun = resolve // the checkpoint has the model
	}
	if cfg, err = resolveRun(trainDefaults, f.config, text, given); err != nil {
		return cfg, "", err
	}
	if err := cfg.MakeAbsolute(); err != nil {
		return cfg, "", err
	}
	if f.allowChanges && !f.resume {
		return cfg, "", errors.New("--allow-changes is for --resume: leave it out, or add --resume")
	}
	if !f.resume {
		if cfg.Out == "" {
			cfg.Out, err = claim.takeFree(cfg.Flavor)
			return cfg, "", err
		}
		if err := claim.take(cfg.Out); err != nil {
			return cfg, "", err
		}
		if !late {
			from, err = sameRun(cfg, warn)
			f.noteRuns(cfg.Out, from)
		}
		return cfg, from, err
	}
	if f.config != "" {
		return cfg, "", errors.New("--resume takes the configuration of the checkpoint: leave --config out, and override single values with flags")
	}
	run := cfg.Out
	if run == "" {
		if run, err = newestRun("give its folder with --out"); err != nil {
			return cfg, "", err
		}
	}
	if err := claim.takeExisting(run); err != nil {
		return cfg, "", err
	}
	if late {
		from, text, err = newestUnverified(run)
	} else {
		from, text, err = newestWhole(run, warn)
	}
	if err != nil {
		return cfg, "", err
	}
	saved := filepath.Join(from, "config.toml")
	if cfg, err = resolve(savedDefaults, saved, text, nil); err != nil {
		return cfg, "", err
	}
	before := cfg
	apply(&cfg, given)
	if err := errors.Join(before.MakeAbsolute(), cfg.MakeAbsolute()); err != nil {
		return cfg, "", err
	}
	if !late {
		f.noteRuns(run, from)
		err = f.compare(before, cfg, from)
	}
	cfg.Out = run
	return cfg, from, err
}

// sameRun returns the newest checkpoint in cfg.Out if its run has exactly this configuration, so
// that repeating a command continues the run. Otherwise it returns an empty path, and a new run
// refuses a folder with checkpoints.
func sameRun(cfg trainer.Config, warn io.Writer) (from string, err error) {
	if _, err := checkpoint.Latest(cfg.Out); errors.Is(err, checkpoint.ErrNone) {
		return "", nil
	}
	from, text, err := newestWhole(cfg.Out, warn)
	if err != nil || !sameConfig(text, cfg) {
		return "", err
	}
	return from, nil
}

// sameConfig reports whether the configuration in a checkpoint, which an earlier version may have
// written, describes this run. When a run saves does not matter.
func sameConfig(text []byte, cfg trainer.Config) bool {
	saved, err := resolve(savedDefaults, "", text, nil)
	if err != nil {
		return false
	}
	saved.SaveEvery, saved.SaveRetry = cfg.SaveEvery, cfg.SaveRetry
	relative := saved.MakeAbsolute() // in runs of earlier versions
	has, failed := trainer.ConfigTOML(saved)
	want, err := trainer.ConfigTOML(cfg)
	return errors.Join(relative, failed, err) == nil && bytes.Equal(has, want)
}

// savedDefaults returns the defaults of the configuration in a checkpoint. Versions that did not
// know optimizer.moments had FP32, whatever the flavor's default is now.
func savedDefaults(flavor string, steps int) (trainer.Config, error) {
	cfg, err := trainDefaults(flavor, steps)
	cfg.Optimizer.Moments = moe.MomentsFP32
	return cfg, err
}

// newestUnverified returns the newest checkpoint of a run under way and the configuration in it. It
// neither verifies nor changes anything.
func newestUnverified(run string) (path string, config []byte, err error) {
	if path, err = checkpoint.Latest(run); err == nil {
		config, err = system.ReadFile(filepath.Join(path, "config.toml"), stricttoml.MaxSize)
	}
	return path, config, err
}

// newestRun returns the folder in runs/ that was changed last and has a checkpoint. advice says how
// to name another one.
func newestRun(advice string) (string, error) {
	entries, err := os.ReadDir(runsFolder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	newest, path := int64(-1), ""
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		run := filepath.Join(runsFolder, e.Name())
		if _, err := checkpoint.Latest(run); err == nil && info.ModTime().UnixNano() > newest {
			newest, path = info.ModTime().UnixNano(), run
		}
	}
	if path == "" {
		return "", fmt.Errorf("no run with a checkpoint in %s: %s", runsFolder, advice)
	}
	return path, nil
}
