package main

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
	"strconv"
	"strings"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer"
)

// trainFlags are the flags of train outside the configuration.
type trainFlags struct {
	world   worldFlags
	config  string
	resume  bool
	dryRun  bool
	view    viewFlags
	profile bool
	cpuFile string
	trace   string
	ratios  bool
	project string
	beside  besideFlags
	given   *[]assignment
}

func defineTrain(fs *flag.FlagSet) func(context.Context, env) error {
	f := &trainFlags{}
	f.world.define(fs)
	fs.StringVar(&f.config, "config", "", "`FILE` configuration in TOML; flags override it")
	fs.BoolVar(&f.resume, "resume", false, "continue from the newest checkpoint of --out, or of the newest run")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print configuration, sizes and costs, and stop")
	fs.StringVar(&f.view.format, "log-format", "text", "`FORMAT` of the log: text or json")
	fs.BoolVar(&f.view.plain, "plain", false, "print lines alone, without a live view, on a terminal too")
	fs.StringVar(&f.view.color, "color", "auto", "`WHEN` text is coloured: auto (on a terminal, unless NO_COLOR is set), always or never")
	fs.BoolVar(&f.view.relay, "relay", false, internal+"a rank process sends what happens to its launcher, which shows it")
	fs.BoolVar(&f.profile, "profile", false, "print at the end where a step's time went")
	fs.StringVar(&f.cpuFile, "cpuprofile", "", "`FILE` to write a CPU profile of the run to, for go tool pprof")
	fs.StringVar(&f.trace, "trace", "", "`steps=A..B` of which OUT/trace.json says what each rank does when, for ui.perfetto.dev")
	fs.BoolVar(&f.ratios, "record-ratios", false, "measure where tokens go and what takes the time, into OUT/ratios.json, for project --ratios")
	fs.StringVar(&f.project, "project", "", "`GPU` on 256 of which the 671B model is projected at the end, with this run's routing")
	f.beside.define(fs)
	f.given = bind(fs, trainDefaults)
	return f.run
}

func (f *trainFlags) run(ctx context.Context, env env) error {
	if err := f.world.check(env); err != nil {
		return err
	}
	shown, err := f.view.tell(env, f.world)
	if err != nil {
		return err
	}
	defer shown.close()
	given := *f.given
	if given, err = moreData(given, env.args); err != nil {
		return err
	}
	late := env.member != nil && env.member.Late()
	cfg, from, err := f.configure(given, late, env.errOut)
	if err != nil {
		return err
	}
	if f.dryRun {
		return dryRun(cfg, f.world.ranks, env)
	}
	if err := checkProjection(f.project, cfg); err != nil {
		return err
	}
	var job *trainer.Job
	if late {
		job, err = trainer.Rejoin(cfg, f.world.ranks, shown.Reporter)
	} else {
		job, err = trainer.PrepareHere(cfg, f.world.ranks, env.ranksHere(f.world.ranks), from, shown.Reporter)
	}
	if err != nil {
		return err
	}
	defer job.Close()
	job.Profile = f.profile
	if f.ratios || f.project != "" {
		job.Routing = routingMeters(cfg)
	}
	if job.Trace, err = parseWindow(f.trace); err != nil {
		return err
	}
	beside, err := f.beside.start(cfg, shown.env)
	if err != nil {
		return err
	}
	defer beside.end()
	want := needsOf(job, cfg.Out)
	world, err := f.world.here(shown.env, want)
	if err != nil {
		return err
	}
	if world == nil {
		err = f.world.launch(ctx, shown.env, want, append(shown.ranks, "--out", cfg.Out))
	} else {
		stop, failed := startProfile(profileOf(f.cpuFile, env))
		if failed != nil {
			return failed
		}
		cancel := tellOfStop(ctx, env, cfg.Out)
		if err = errors.Join(job.Run(ctx, world), stop()); err != nil {
			err = failure{resumable(err, env, cfg.Out), trainCode(err)}
		}
		cancel()
	}
	if errors.Is(err, trainer.ErrInterrupted) {
		return failure{err, exitInterrupted}
	}
	if err == nil && f.project != "" && env.first() {
		err = projectRun(shown.env.out, f.project, cfg.Out)
	}
	return err
}

// parseWindow reads --trace: steps=5..7, steps=5, or nothing.
func parseWindow(text string) (w trainer.Window, err error) {
	if text == "" {
		return w, nil
	}
	steps, ok := strings.CutPrefix(text, "steps=")
	first, last, both := strings.Cut(steps, "..")
	if !both {
		last = first
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(last)
	if !ok || errA != nil || errB != nil || a < 1 || b < a {
		return w, fmt.Errorf("--trace is %q: give steps=5..7, for steps 5 to 7, or steps=5", text)
	}
	return trainer.Window{First: a, Last: b}, nil
}

// trainCode is the exit code of a run that has failed.
func trainCode(err error) int {
	if errors.As(err, new(*trainer.SkipError)) {
		return spmd.DoNotRestart
	}
	return exitFailed
}

// profileOf is where a rank writes its CPU profile: processes each have a file of their own.
func profileOf(path string, env env) string {
	if path == "" || env.member == nil {
		return path
	}
	return fmt.Sprintf("%s.rank%d", path, env.member.Number())
}

// startProfile begins a CPU profile, unless path is empty; stop completes the file.
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

// moreData lets --data take several paths: those that follow it are left as arguments.
func moreData(given []assignment, args []string) ([]assignment, error) {
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
// run starts from the configuration that was saved with its checkpoint. warn is told of damaged
// ones. A process that is late comes to a run under way, whose checkpoints it leaves alone.
func (f *trainFlags) configure(given []assignment, late bool, warn io.Writer) (cfg trainer.Config, from string, err error) {
	text, err := readConfig(f.config)
	if err != nil {
		return cfg, "", err
	}
	describe := configured
	if f.resume {
		describe = resolve // what matters is in the checkpoint
	}
	if cfg, err = describe(trainDefaults, f.config, text, given); err != nil {
		return cfg, "", err
	}
	if !f.resume {
		if cfg.Out == "" {
			cfg.Out, err = freeRun(cfg.Flavor)
			return cfg, "", err
		}
		if !late {
			from, err = sameRun(cfg, warn)
		}
		return cfg, from, err
	}
	if f.config != "" {
		return cfg, "", errors.New("--resume takes the configuration of the checkpoint: leave --config out, and override single values by flags")
	}
	run := cfg.Out
	if run == "" {
		if run, err = newestRun(); err != nil {
			return cfg, "", err
		}
	}
	if late {
		from, text, err = newestNow(run)
	} else {
		from, text, err = newestWhole(run, warn)
	}
	if err != nil {
		return cfg, "", err
	}
	saved := filepath.Join(from, "config.toml")
	if cfg, err = resolve(trainDefaults, saved, text, nil); err != nil {
		return cfg, "", err
	}
	flavor, tokenizer := cfg.Flavor, cfg.Tokenizer
	if apply(&cfg, given); cfg.Flavor != flavor {
		return cfg, "", fmt.Errorf("%s is of flavor %s, not %s: leave --flavor out, or start a new run", from, flavor, cfg.Flavor)
	}
	if cfg.Tokenizer != tokenizer {
		return cfg, "", fmt.Errorf("%s was trained with tokenizer %q, not %q: leave --tokenizer out, or start a new run", from, tokenizer, cfg.Tokenizer)
	}
	cfg.Out = run
	return cfg, from, nil
}

// sameRun returns the checkpoint in cfg.Out of a run of this very configuration: the same command,
// given again, goes on. It is empty for a run that begins, which must not find another's
// checkpoints.
func sameRun(cfg trainer.Config, warn io.Writer) (from string, err error) {
	if _, err := checkpoint.Latest(cfg.Out); errors.Is(err, checkpoint.ErrNone) {
		return "", nil
	}
	want, err := trainer.ConfigTOML(cfg)
	if err != nil {
		return "", err
	}
	from, text, err := newestWhole(cfg.Out, warn)
	if err != nil || !bytes.Equal(text, want) {
		return "", err
	}
	return from, nil
}

// newestNow returns the newest checkpoint of a run under way, and the configuration in it.
func newestNow(run string) (path string, config []byte, err error) {
	if path, err = checkpoint.Latest(run); err == nil {
		config, err = os.ReadFile(filepath.Join(path, "config.toml"))
	}
	return path, config, err
}

// runsFolder holds the runs without an --out of their own.
const runsFolder = "runs"

// freeRun returns the first runs/NAME-N that does not exist.
func freeRun(name string) (string, error) {
	for n := 1; ; n++ {
		path := filepath.Join(runsFolder, fmt.Sprintf("%s-%d", name, n))
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", err
		}
	}
}

// newestRun returns the folder in runs/ that was changed last and has a checkpoint.
func newestRun() (string, error) {
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
		return "", fmt.Errorf("no run with a checkpoint in %s: give its folder with --out", runsFolder)
	}
	return path, nil
}

// dryRun prints what a run would be.
func dryRun(cfg trainer.Config, ranks int, env env) error {
	if err := cfg.Validate(ranks); err != nil {
		return err
	}
	text, err := trainer.ConfigTOML(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.out, "%s\n", text)
	summarize(env.out, "# ", cfg, ranks)
	return nil
}
