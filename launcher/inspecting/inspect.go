// Package inspecting has the commands that inspect runs and models.
package inspecting

// inspect: a model's parameters, memory, FLOPs and bytes per component, from its configuration
// alone, or the pages of runs.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"spmoe/collective/ep"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// inspectFlags are the flags of inspect outside the configuration.
type inspectFlags struct {
	ranks, hosts       int
	config             string
	json, html, verify bool
	layouts, schedule  bool
	given              *[]cli.Assignment
	names              func() []string // the flags on the command line
}

// DefineInspect defines the flags of inspect.
func DefineInspect(fs *flag.FlagSet) cli.Action {
	f := &inspectFlags{}
	running.DefineRankCount(fs, &f.ranks, 0)
	fs.Lookup("np").Usage = "(ranks) `N` ranks of the model; 0: those of the newest checkpoint of a run, or 1"
	fs.StringVar(&f.config, "config", "", "(run) `FILE` read the configuration from the TOML file FILE; flags override it")
	fs.BoolVar(&f.layouts, "layouts", false, "list the layouts of -np ranks, with the memory and the traffic of each; --pp, --cp, --tp and --ep choose some")
	fs.IntVar(&f.hosts, "hosts", 1, "`N` hosts of --layouts, with equal numbers of ranks")
	fs.BoolVar(&f.schedule, "schedule", false, "with --pp, list what each rank of the pipeline does")
	fs.BoolVar(&f.html, "html", false, "write report.html of a run again")
	fs.BoolVar(&f.verify, "verify", false, "read every byte of a checkpoint, or of all checkpoints of a run")
	fs.BoolVar(&f.json, "json", false, "print JSON; one layout per line")
	all := flag.NewFlagSet("", flag.ContinueOnError)
	f.given = cli.Bind(all, cli.TrainDefaults)
	cli.SelectFlags(fs, all, []string{
		"flavor", "seq", "batch", "micro-batch", "chain-passes", "precision", "recipe", "recompute", "threads", "dp-replicate", "dp-shard", "fsdp", "cp", "tp", "ep",
		"pp", "pp-schedule", "pp-stages-per-rank", "pp-microbatches", "pp-overlap", "ep-dispatch", "ep-combine-backward", "save-every", "save-async",
		"optimizer.name", "optimizer.moments", "model.", "sum", "nvfp4.", "mxfp4.", "fp8.", "mx.",
	})
	f.names = func() (names []string) {
		fs.Visit(func(g *flag.Flag) { names = append(names, g.Name) })
		return names
	}
	return f.run
}

// modes are flags. Inspect takes at most one of them, and the first two take no other flag.
var modes = []string{"html", "verify", "layouts", "schedule"}

// oneMode refuses flags that the chosen mode would ignore.
func (f *inspectFlags) oneMode() error {
	names, mode := f.names(), ""
	for _, name := range names {
		switch {
		case !slices.Contains(modes, name):
		case mode != "":
			return fmt.Errorf("--%s and --%s were given: inspect does one of them at a time", mode, name)
		default:
			mode = name
		}
	}
	for _, name := range names {
		if slices.Contains(modes[:2], mode) && name != mode || name == "hosts" && mode != "layouts" {
			return fmt.Errorf("--%s has no meaning for inspect%s: leave it out", name, strings.TrimSuffix(" --"+mode, " --"))
		}
	}
	return nil
}

func (f *inspectFlags) run(ctx context.Context, env cli.Env) error {
	if err := f.oneMode(); err != nil {
		return err
	}
	switch {
	case f.html:
		return writePages(env.Args, env)
	case f.verify:
		return verifyCheckpoints(ctx, env.Out, env.Args)
	}
	if f.ranks == 0 {
		f.ranks = savedRanks(env.Args)
	}
	cfg, err := f.configure(env.Args)
	if err != nil {
		return err
	}
	if err := f.check(cfg); err != nil {
		return err
	}
	if f.layouts {
		return f.listLayouts(env, cfg)
	}
	if f.schedule && !cfg.Pipelined() {
		return errors.New("--schedule lists what the ranks of a pipeline do: give their number, as in --pp 4")
	}
	layout, err := cfg.Layout(f.ranks)
	if err != nil {
		return err
	}
	if cfg.Model.MoELayers() > 0 {
		if _, err := ep.NewLayout(cfg.Model.Experts, layout.EP); err != nil {
			return fmt.Errorf("-np %d: %s", f.ranks, strings.TrimPrefix(err.Error(), "ep: "))
		}
	}
	if _, err := estimate.Holdings(cfg, f.ranks); err != nil {
		return err
	}
	if f.json {
		encoder := json.NewEncoder(env.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(newSizes(cfg, f.ranks))
	}
	printSizes(env.Out, cfg, f.ranks)
	if cfg.Pipelined() {
		if err := printPipeline(env.Out, cfg, f.ranks, f.schedule); err != nil {
			return err
		}
	}
	if len(env.Args) == 1 && !slices.Contains(cli.Flavors(), env.Args[0]) {
		return listCheckpoints(env.Out, env.Args[0])
	}
	return nil
}

// configure finds the configuration to inspect: that of a flavor or of a folder.
func (f *inspectFlags) configure(args []string) (cfg config.Config, err error) {
	switch {
	case len(args) > 1:
		return cfg, fmt.Errorf("inspect takes one flavor or folder, not %q; --html takes several runs", args)
	case len(args) == 1 && f.config != "":
		return cfg, fmt.Errorf("inspect takes %s or --config, not both", args[0])
	}
	name, from := f.config, cli.Defaults(cli.TrainDefaults)
	text, err := cli.ReadConfig(f.config)
	if len(args) == 1 && slices.Contains(cli.Flavors(), args[0]) {
		from = func(_ string, steps int) (config.Config, error) { return cli.TrainDefaults(args[0], steps) }
	} else if len(args) == 1 {
		name, text, from, err = running.ReadFolder(args[0])
	}
	if err != nil {
		return cfg, err
	}
	if cfg, err = cli.Resolve(from, name, text, *f.given); err != nil {
		return cfg, err
	}
	if over := cfg.Batch % max(f.ranks, 1); over > 0 && !cli.Gives(*f.given, "Batch") {
		// Pad the batch for the requested number of ranks, which may differ from the run's.
		cfg.Batch += f.ranks - over
	}
	return cfg, nil
}

// mostRanks is the maximum number of ranks of a model that is described. A run has fewer: see
// collective.MaxRanks.
const mostRanks = 4096

// check returns an error if sizes cannot be computed for a configuration. It ignores what only
// prevents a run.
func (f *inspectFlags) check(cfg config.Config) error {
	if f.ranks < 1 || f.ranks > mostRanks {
		return fmt.Errorf("-np is %d: give 1 or more ranks, at most %d", f.ranks, mostRanks)
	}
	_, err := cfg.DType()
	if err := errors.Join(err, cfg.Model.Validate()); err != nil {
		return err
	}
	if cfg.Seq < 1 || cfg.Seq > cfg.Model.MaxPositions {
		return fmt.Errorf("seq is %d: give 1 to %d (model.max_positions)", cfg.Seq, cfg.Model.MaxPositions)
	}
	const most = 1 << 24
	if cfg.Batch < 1 || cfg.Batch > most || cfg.Batch%f.ranks != 0 {
		return fmt.Errorf("batch is %d: give a multiple of the %d ranks, at most %d", cfg.Batch, f.ranks, most)
	}
	return nil
}

// Summarize prints totals of parameters, FLOPs and memory, each line after a prefix.
func Summarize(out io.Writer, prefix string, cfg config.Config, ranks int) {
	n := cfg.Model.Count()
	memory := estimate.Memory(cfg, ranks)
	machine := system.ReadMemory()
	flops := cfg.Model.FLOPsPerToken(cfg.Seq)
	for _, line := range []string{
		fmt.Sprintf("parameters: %s total, %s active per token, %s in routed experts", report.Count(n.Total), report.Count(n.Active), report.Count(n.Routed)),
		fmt.Sprintf("FLOPs: %.4g per token, %.4g per step of %d tokens", flops, flops*float64(cfg.Batch*cfg.Seq), cfg.Batch*cfg.Seq),
		fmt.Sprintf("memory per rank, of %s: %s (weights %s, gradients %s, optimizer %s, activations about %s, snapshot %s, process %s)", report.Plural(ranks, "rank"),
			system.Bytes(memory.Total()), system.Bytes(memory.Weights), system.Bytes(memory.Gradients), system.Bytes(memory.Optimizer), system.Bytes(memory.Activations), system.Bytes(memory.Snapshot), system.Bytes(memory.Process)),
		fmt.Sprintf("memory of all ranks: %s; this machine: %s available of %s, %s", system.Bytes(estimate.AllMemory(cfg, ranks).Total()),
			system.Bytes(machine.Available), system.Bytes(machine.Total), report.Plural(runtime.NumCPU(), "core")),
	} {
		fmt.Fprintf(out, "%s%s\n", prefix, line)
	}
}

// printSizes prints the totals, and tables per component.
func printSizes(out io.Writer, cfg config.Config, ranks int) {
	fmt.Fprintf(out, "%s, %s, on %s; steps of %s of %d tokens\n", cfg.Flavor, cfg.Precision, report.Plural(ranks, "rank"), report.Plural(cfg.Batch, "sequence"), cfg.Seq)
	Summarize(out, "", cfg, ranks)
	s := newSizes(cfg, ranks)
	rows, total := s.rows()

	table := cli.NewTable(out, "parameters", "total", "active", "share")
	for _, p := range append(rows, total) {
		table.Row(p.Part, report.Count(p.Params), report.Count(p.Active), cli.Percent(float64(p.Params), float64(total.Params)))
	}
	unit := cli.UnitOf(total.FLOPs.Total())
	table = cli.NewTable(out, unit.Name+"FLOP per token", "forward", "dgrad", "wgrad", "all", "share")
	for _, p := range append(rows, total) {
		f := p.FLOPs
		table.Row(p.Part, unit.Of(f.Forward), unit.Of(f.Dgrad), unit.Of(f.Wgrad), unit.Of(f.Total()), cli.Percent(f.Total(), total.FLOPs.Total()))
	}
	fmt.Fprint(out, "  attention over the whole sequence, as if not causal; multi-token prediction is not counted in the FLOPs per token\n")
	table = cli.NewTable(out, "memory per rank", "weights", "gradients", "optimizer", "activations", "snapshot", "all")
	for _, p := range append(rows, s.process(), total) {
		m := p.Memory
		table.Row(p.Part, system.Bytes(m.Weights), system.Bytes(m.Gradients), system.Bytes(m.Optimizer), system.Bytes(m.Activations), system.Bytes(m.Snapshot), system.Bytes(m.Total()))
	}
	fmt.Fprintf(out, "  with --ranks process: %s per rank survive its failure, and up to %s of shared memory are reserved, not used\n", system.Bytes(s.Vault), system.Bytes(s.Heap))
	heads := cmp.Or(cfg.Model.KVHeads, cfg.Model.Heads)
	indexers := ""
	if cfg.Model.IndexHeads > 0 {
		indexers = ", and keys of indexers"
	}
	what := "keys and values of " + report.Plural(heads, "head")
	if cfg.Model.Attention != "" {
		what = "entries, next to a window of the same size for any text"
	}
	fmt.Fprintf(out, "\nKV cache per token: %d bytes, %s%s\n", s.Cache, what, indexers)
}
