package measuring

// project: the throughput of a recipe on a cluster of GPUs, with an interval and its terms.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"spmoe/bench/projection"
	"spmoe/bench/ratios"
	"spmoe/collective/pipeline"
	"spmoe/launcher/cli"
	"spmoe/launcher/system"
)

// projectFlags are the flags of project. Each subcommand defines those that it reads.
type projectFlags struct {
	run      projection.Run
	dedup    string
	overlap  float64
	hardware string
	ratios   string
	json     bool
	out      string
	hosts    hostsFlags
	set      *flag.FlagSet // the flag set of the subcommand
}

// define defines the named flags.
func (f *projectFlags) define(fs *flag.FlagSet, names []string) {
	f.run, f.set = projection.Target(), fs
	r, all := &f.run, flag.NewFlagSet("", flag.ContinueOnError)
	all.StringVar(&r.Model, "model", r.Model, "`NAME` built-in or published model, or the path of a Hugging Face config.json")
	all.IntVar(&r.Layers, "layers", 0, "`N` transformer layers; 0: the model's")
	all.StringVar(&r.GPU, "gpu", r.GPU, "`KIND` GPU: "+strings.Join(projection.GPUs(), ", "))
	all.StringVar(&f.hardware, "hardware", "", "`FILE` describe another GPU by FILE, in the format of bench/projection/data/hardware")
	all.IntVar(&r.GPUs, "gpus", r.GPUs, "`N` number of GPUs")
	all.StringVar(&r.Precision, "precision", r.Precision, "`NAME` recipe: bf16, mxfp8-experts (grouped GEMMs), mxfp8 or nvfp4 (all linears) or fp8 (on Hopper)")
	all.IntVar(&r.Seq, "seq", r.Seq, "`N` tokens per sequence")
	all.IntVar(&r.Batch, "batch", r.Batch, "`N` sequences per optimizer step over all GPUs")
	all.IntVar(&r.MicroBatch, "micro-batch", r.MicroBatch, "`N` sequences per forward and backward pass")
	all.BoolVar(&r.MTP, "mtp", r.MTP, "include the multi-token prediction module")
	all.IntVar(&r.TP, "tp", r.TP, "`N` tensor-parallel degree, in GPUs")
	all.IntVar(&r.CP, "cp", 1, "`N` context-parallel degree, in GPUs")
	all.IntVar(&r.PP, "pp", r.PP, "`N` pipeline-parallel degree, in GPUs")
	all.IntVar(&r.VP, "vp", r.VP, "`N` interleaved pipeline stages per GPU")
	all.StringVar(&r.Schedule, "pp-schedule", "", "`NAME` schedule of the pipeline: "+strings.Join(pipeline.Names(), ", ")+"; empty: 1F1B or, if vp > 1, Interleaved1F1B")
	all.IntVar(&r.EP, "ep", r.EP, "`N` expert-parallel degree, in GPUs")
	all.StringVar(&r.Recompute, "recompute", r.Recompute, "`WHAT` recompute activations in the backward pass: none, selective, titan_op "+
		"(TorchTitan's selective checkpointing of operations), full, or modules joined by +: "+strings.Join(projection.Modules(), ", "))
	all.StringVar(&r.Stack, "stack", r.Stack, "`NAME` framework whose overheads to assume: "+strings.Join(projection.Stacks(), ", "))
	all.StringVar(&r.Routing, "routing", r.Routing, "`MODE` routing: round_robin (forced balance), uniform (random), natural (with --imbalance) or measured (from --ratios)")
	all.Float64Var(&r.Imbalance, "imbalance", 0, "`RATIO` most loaded rank over the mean, with --routing natural")
	all.StringVar(&r.Graphs, "graphs", "", "`KIND` CUDA graphs: none, partial (attention, router, permutation) or full; empty: as the stack does")
	all.BoolVar(&r.Deterministic, "deterministic", false, "sums in a fixed order on the GPU: slower attention and permutation")
	all.IntVar(&r.Duplicate, "duplicate", r.Duplicate, "`N` GPUs of a tensor-parallel group that each dispatch all tokens; 1: they share the tokens")
	all.IntVar(&r.TopK, "top-k", 0, "`N` experts per token; 0: the model's")
	all.IntVar(&r.GroupLimit, "group-limit", 0, "`N` expert groups that a token may visit; 0: the model's")
	all.StringVar(&r.Wire, "wire", "bf16", "`FORMAT` format of tokens in transit to experts: bf16 or mxfp8")
	all.StringVar(&f.dedup, "dedup", "", "`SWITCH` send a token once to each rank and node: on or off; empty: as the stack does")
	all.Float64Var(&f.overlap, "overlap", -1, "`SHARE` share of the exchange that is hidden behind computation, 0 to 1; -1: as the stack does")
	all.Float64Var(&r.NIC, "nic", 0, "`GB/S` bandwidth of a GPU's network card, each way; 0: the GPU's")
	all.IntVar(&r.NVLinkDomain, "nvlink-domain", 0, "`N` GPUs per NVLink domain; 0: the GPU's")
	all.StringVar(&f.ratios, "ratios", "", "`FILE` ratios from train --record-ratios or bench ratios; several files with commas, the first with the routing")
	all.Float64Var(&r.HostMicros, "host-us", 0, "`US` time of the host per kernel that it launches; 0: the GPU's")
	all.BoolVar(&f.json, "json", false, "print JSON")
	all.StringVar(&f.out, "out", "", "`FOLDER` write a page and all numbers to FOLDER")
	f.hosts.define(all)
	cli.SelectFlags(fs, all, names)
}

// gpuFlagNames returns the flags of a recipe on a cluster of GPUs.
func gpuFlagNames() []string {
	return []string{"model", "gpu", "hardware", "gpus", "precision", "seq", "batch", "micro-batch", "mtp", "layers", "tp", "cp", "pp", "vp", "pp-schedule", "ep", "recompute", "stack", "routing",
		"imbalance", "graphs", "deterministic", "duplicate", "top-k", "group-limit", "wire", "dedup", "overlap", "nic", "nvlink-domain", "host-us", "ratios", "json", "out"}
}

// DefineProject defines the flags of project.
func DefineProject(fs *flag.FlagSet) cli.Action { return defineProjection(fs, false) }

// defineProjection is project, or with explain project explain.
func defineProjection(fs *flag.FlagSet, explain bool) cli.Action {
	f := &projectFlags{}
	f.define(fs, gpuFlagNames())
	return cli.NoArguments(func(_ context.Context, env cli.Env) error {
		file, err := f.complete()
		if err != nil {
			return err
		}
		return f.project(env, file, explain)
	})
}

// ProjectCommands are the subcommands of project.
func ProjectCommands() []cli.Command {
	return []cli.Command{
		{Name: "project explain", About: "print a projection with the formula and the source of each term",
			Examples: []string{"project explain --stack titan_deepep --precision mxfp8-experts --duplicate 2"},
			Define:   func(fs *flag.FlagSet) cli.Action { return defineProjection(fs, true) }},
		{Name: "project validate", About: "print how far predictions of published runs are off",
			Examples: []string{"project validate"},
			Define: func(fs *flag.FlagSet) cli.Action {
				f := &projectFlags{}
				f.define(fs, []string{"json"})
				return cli.NoArguments(func(_ context.Context, env cli.Env) error { return f.validate(env) })
			}},
		{Name: "project hosts", About: "project training onto CPU hosts in a network, from measurements of one host and its link",
			Examples: []string{
				"project hosts --train train.jsonl --link link.jsonl",
				"project hosts --train train.jsonl --link-gbits 100 --link-latency 10us",
			},
			Define: defineProjectHosts},
	}
}

// complete completes the run that the flags describe and reads the files that they name. file is
// nil without --ratios.
func (f *projectFlags) complete() (file *ratios.File, err error) {
	if err := f.readModel(); err != nil {
		return nil, err
	}
	f.adapt()
	switch f.dedup {
	case "":
	case "on", "off":
		on := f.dedup == "on"
		f.run.Dedup = &on
	default:
		return nil, fmt.Errorf("--dedup is %q: give on or off", f.dedup)
	}
	if f.overlap != -1 {
		f.run.Hidden = &f.overlap
	}
	if f.hardware != "" {
		text, err := system.ReadFile(f.hardware, 1<<20)
		if err != nil {
			return nil, fmt.Errorf("--hardware: %w", err)
		}
		h, err := projection.ParseHardware(f.hardware, text)
		if err != nil {
			return nil, err
		}
		f.run.Hardware, f.run.GPU = &h, h.Name
	}
	if f.ratios != "" {
		var read ratios.File
		for i, path := range strings.Split(f.ratios, ",") {
			more, err := OpenRatios(path)
			if err != nil {
				return nil, fmt.Errorf("--ratios: %w", err)
			}
			if i == 0 {
				read = more
			}
			read.Fill(more)
		}
		if f.run.Routing == projection.FromRun {
			if f.run.Ratios, err = projection.FromRatios(read, f.run.EP); err != nil {
				return nil, fmt.Errorf("--ratios %s: %w", f.ratios, err)
			}
		}
		return &read, nil
	}
	return nil, nil
}

// readModel reads the model that --model names as a file.
func (f *projectFlags) readModel() error {
	path := f.run.Model
	if !strings.HasSuffix(path, ".json") {
		return nil
	}
	text, err := system.ReadFile(path, 16<<20)
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	m, err := projection.ParseModel(path, text, f.run.MTP)
	f.run.Shape = &m
	return err
}

// adapt replaces the defaults, which are those of 256 GPUs, by those of one host if the run has
// one: no pipeline and no tensor parallelism, experts on all GPUs that divide them, one micro-batch
// per step, and TorchTitan as shipped.
func (f *projectFlags) adapt() {
	r, of := &f.run, map[string]bool{}
	for _, name := range f.given() {
		of[name] = true
	}
	if r.GPUs > 8 || r.GPUs < 1 {
		return
	}
	experts := r.Experts()
	for _, d := range []struct {
		flag  string
		to    *int
		value int
	}{
		{"tp", &r.TP, 1}, {"pp", &r.PP, 1}, {"vp", &r.VP, 1}, {"duplicate", &r.Duplicate, 1},
		{"ep", &r.EP, gcd(r.GPUs, experts)}, {"batch", &r.Batch, r.MicroBatch * r.GPUs},
	} {
		if !of[d.flag] {
			*d.to = d.value
		}
	}
	if !of["stack"] {
		r.Stack = "titan_fsdp"
	}
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}

// project prints the projection of the run, together with the headline scenarios.
func (f *projectFlags) project(env cli.Env, file *ratios.File, explain bool) error {
	r, err := f.compute()
	if err != nil {
		return err
	}
	if file != nil {
		if err := f.addNotes(&r, *file); err != nil {
			return err
		}
	}
	if f.json {
		encoder := json.NewEncoder(env.Out)
		encoder.SetIndent("", " ")
		return encoder.Encode(r)
	}
	printHeadline(env.Out, r)
	printBudget(env.Out, r, explain)
	if f.out == "" {
		return nil
	}
	r.Effects, r.Excluded = projection.PublishedEffects(), projection.ExcludedRows()
	if err := r.Write(f.out); err != nil {
		return cli.Fail(err, cli.ExitFailed)
	}
	fmt.Fprintf(env.Out, "page: %s\n", filepath.Join(f.out, "projection.html"))
	return nil
}

// compute computes everything about the run and the headline except the validation.
func (f *projectFlags) compute() (r Projection, err error) {
	r.Version, r.Hash = projection.ParameterVersion(), projection.ParameterHash()
	set := projection.Central()
	if err := f.run.Check(); err != nil {
		return r, err
	}
	run := f.run
	if run.Residual, err = projection.Carried(run, set); err != nil {
		return r, err
	}
	if r.Budget, err = projection.Project(run, set); err != nil {
		return r, err
	}
	r.Range = r.Budget.Range()
	for _, s := range projection.Scenarios() {
		h, err := s.Project(set)
		if err != nil {
			return r, err
		}
		calibrated := projection.Range{P10: projection.PublishedBF16, P50: projection.PublishedBF16, P90: projection.PublishedBF16}
		r.Headlines, r.Ranges = append(r.Headlines, h), append(r.Ranges, [3]projection.Range{calibrated, h.Range(1), h.Range(2)})
	}
	r.Swings, err = projection.HeadlineTornado()
	return r, err
}

// addNotes adds notes about a file of ratios to the report.
func (f *projectFlags) addNotes(r *Projection, file ratios.File) error {
	if f.run.Ratios != nil {
		m, err := projection.ModelByName(f.run.Model, f.run.MTP)
		if err != nil {
			return err
		}
		r.Notes = append(r.Notes, fmt.Sprintf("measured routing: fullest rank %.3f times the mean, %.3f times the distinct ranks of uniform routing (%s)",
			f.run.Ratios.RankImbalance, f.run.Ratios.DistinctOverUniform, f.run.Ratios.Origin))
		if why := projection.Mismatch(file, m); why != "" {
			r.Notes = append(r.Notes, why)
		}
	}
	if d := file.Density; d.Causal > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("measured and transferable: groups padded to 32 rows have %.1f %% more, to 128 %.1f %%; a document mask leaves %.2f of this text's causal scores",
			100*file.Padding.To32, 100*file.Padding.To128, d.Document/d.Causal))
	}
	if standard, dedup := file.Traffic.Bytes(); dedup > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("measured and transferable: %.2f times the bytes without de-duplication, on %d ranks", float64(standard)/float64(dedup), file.Ranks))
	}
	if deep, mx, ok := projection.EngineOnly(file); ok {
		r.Notes = append(r.Notes, fmt.Sprintf("from this machine's measured ratios of times alone: 651 -> %.0f -> %.0f tokens/s (published 859 and 918): CPU ratios do not transfer, see docs/projection.md", deep, mx))
	}
	for _, p := range file.Products {
		r.Notes = append(r.Notes, fmt.Sprintf("CPU fact, %s: MXFP8 takes %.2f of BF16's time for %s %s", file.Machine.CPU, p.Time, p.Name, p.Shape))
	}
	for _, x := range file.Exchange {
		r.Notes = append(r.Notes, fmt.Sprintf("CPU fact, %s: the one-sided exchange takes %.2f of the standard one's time for %d x %d, top-%d, %d ranks", file.Machine.CPU, x.Time, x.Tokens, x.Hidden, x.TopK, x.Ranks))
	}
	return nil
}
