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
	"runtime"
	"runtime/pprof"
	"strings"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer"
)

// trainFlags are the flags of train outside the configuration.
type trainFlags struct {
	world     worldFlags
	config    string
	resume    bool
	dryRun    bool
	logFormat string
	profile   bool
	cpuFile   string
	given     *[]assignment
}

func defineTrain(fs *flag.FlagSet) func(context.Context, env) error {
	f := &trainFlags{}
	f.world.define(fs)
	fs.StringVar(&f.config, "config", "", "`FILE` configuration in TOML; flags override it")
	fs.BoolVar(&f.resume, "resume", false, "continue from the newest checkpoint of --out, or of the newest run")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print configuration, sizes and costs, and stop")
	fs.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
	fs.BoolVar(&f.profile, "profile", false, "print at the end where a step's time went")
	fs.StringVar(&f.cpuFile, "cpuprofile", "", "`FILE` to write a CPU profile of the run to, for go tool pprof")
	f.given = bind(fs, trainDefaults)
	return f.run
}

func (f *trainFlags) run(ctx context.Context, env env) error {
	if err := f.world.check(); err != nil {
		return err
	}
	reporter, err := newReporter(f.logFormat, env)
	if err != nil {
		return err
	}
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
	var job *trainer.Job
	if late {
		job, err = trainer.Rejoin(cfg, f.world.ranks, reporter)
	} else {
		job, err = trainer.Prepare(cfg, f.world.ranks, from, reporter)
	}
	if err != nil {
		return err
	}
	defer job.Close()
	job.Profile = f.profile
	err = f.world.run(ctx, env, needsOf(job, cfg.Out), []string{"--out", cfg.Out}, func(world spmd.World) error {
		stop, err := startProfile(profileOf(f.cpuFile, env))
		if err != nil {
			return err
		}
		if err = errors.Join(job.Run(ctx, world), stop()); err != nil {
			return failure{err, trainCode(err)}
		}
		return nil
	})
	if errors.Is(err, trainer.ErrInterrupted) {
		return failure{err, exitInterrupted}
	}
	return err
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
	return fmt.Sprintf("%s.rank%d", path, env.member.Rank)
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

func newReporter(format string, env env) (trainer.Reporter, error) {
	switch format {
	case "text":
		return report.Console{W: env.quiet().out, Width: system.TerminalWidth(env.out)}, nil
	case "json":
		return report.JSON{W: env.quiet().out}, nil
	}
	return nil, fmt.Errorf("--log-format is %q: use text or json", format)
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

// configure resolves the configuration and finds the checkpoint to continue from, if any. A
// resumed run starts from the configuration that was saved with its checkpoint. warn is told of damaged ones. A process that is late
// comes to a run under way, whose checkpoints it leaves alone.
func (f *trainFlags) configure(given []assignment, late bool, warn io.Writer) (cfg trainer.Config, from string, err error) {
	text, err := readConfig(f.config)
	if err != nil {
		return cfg, "", err
	}
	if cfg, err = resolve(trainDefaults, f.config, text, given); err != nil {
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
	flavor := cfg.Flavor
	if apply(&cfg, given); cfg.Flavor != flavor {
		return cfg, "", fmt.Errorf("%s is of flavor %s, not %s: leave --flavor out, or start a new run", from, flavor, cfg.Flavor)
	}
	cfg.Out = run
	return cfg, from, nil
}

// sameRun returns the checkpoint in cfg.Out of a run of this very configuration: the same command, given again, goes on. It is empty
// for a run that begins, which must not find another's checkpoints.
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
	n, memory, machine := cfg.Model.Count(), cfg.EstimateMemory(ranks), system.ReadMemory()
	fmt.Fprintf(env.out, "%s\n", text)
	fmt.Fprintf(env.out, "# parameters: %s total, %s active a token, %s in routed experts\n", report.Count(n.Total), report.Count(n.Active), report.Count(n.Routed))
	fmt.Fprintf(env.out, "# FLOPs: %.4g a token, %.4g a step of %d tokens\n",
		cfg.Model.FLOPsPerToken(cfg.Seq), cfg.Model.FLOPsPerToken(cfg.Seq)*float64(cfg.Batch*cfg.Seq), cfg.Batch*cfg.Seq)
	fmt.Fprintf(env.out, "# memory of one of %s: %s (weights %s, gradients %s, optimizer %s, activations about %s, snapshot %s)\n", report.Plural(ranks, "rank"),
		system.Bytes(memory.Total()), system.Bytes(memory.Weights), system.Bytes(memory.Gradients), system.Bytes(memory.Optimizer), system.Bytes(memory.Activations), system.Bytes(memory.Snapshot))
	fmt.Fprintf(env.out, "# memory of all: %s; this machine: %s available of %s, %s\n", system.Bytes(memory.Total()*int64(ranks)),
		system.Bytes(machine.Available), system.Bytes(machine.Total), report.Plural(runtime.NumCPU(), "core"))
	return nil
}
