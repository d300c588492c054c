package main

// project: what a recipe would do on a cluster of GPUs, with its interval, its terms and how far
// published figures are met, or on CPU hosts.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/bench/projection"
	"spmoe/bench/ratios"
	"spmoe/launcher/report/projected"
	"spmoe/launcher/system"
	"spmoe/moe"
)

// projectFlags are the flags of project.
type projectFlags struct {
	run      projection.Run
	dedup    string
	hidden   float64
	hardware string
	ratios   string
	samples  int
	seed     uint64
	most     int
	json     bool
	out      string
	hosts    hostsFlags
	set      *flag.FlagSet // that these are of
}

func defineProject(fs *flag.FlagSet) func(context.Context, env) error {
	f := &projectFlags{run: projection.Target(), set: fs}
	r := &f.run
	fs.StringVar(&r.Model, "model", r.Model, "`NAME` of a built-in model, or of a published one that project validate uses")
	fs.StringVar(&r.GPU, "gpu", r.GPU, "`KIND` of GPU: "+strings.Join(projection.GPUs(), ", "))
	fs.StringVar(&f.hardware, "hardware", "", "`FILE` that describes another GPU, in the form of bench/projection/data/hardware")
	fs.IntVar(&r.GPUs, "gpus", r.GPUs, "`N` GPUs")
	fs.StringVar(&r.Precision, "precision", r.Precision, "`NAME` of the recipe: bf16, mxfp8-experts (grouped GEMMs), mxfp8 (all linears) or fp8 (on Hopper)")
	fs.IntVar(&r.Seq, "seq", r.Seq, "`N` tokens of a sequence")
	fs.IntVar(&r.Batch, "batch", r.Batch, "`N` sequences of an optimizer step, all GPUs together; for project hosts, of each host")
	fs.IntVar(&r.MicroBatch, "micro-batch", r.MicroBatch, "`N` sequences of one pass")
	fs.BoolVar(&r.MTP, "mtp", r.MTP, "with the module for multi-token prediction")
	fs.IntVar(&r.TP, "tp", r.TP, "`N` GPUs of a tensor-parallel group")
	fs.IntVar(&r.PP, "pp", r.PP, "`N` GPUs of a pipeline")
	fs.IntVar(&r.VP, "vp", r.VP, "`N` stages of a GPU, interleaved")
	fs.IntVar(&r.EP, "ep", r.EP, "`N` GPUs of an expert-parallel group")
	fs.StringVar(&r.Recompute, "recompute", r.Recompute, "`WHAT` is computed again in the backward pass: none, selective or full")
	fs.StringVar(&r.Stack, "stack", r.Stack, "`NAME` of what the framework does beside the arithmetic: "+strings.Join(projection.Stacks(), ", "))
	fs.StringVar(&r.Routing, "routing", r.Routing, "`MODE` of routing: round_robin (forced balance), uniform (random) or measured (by --ratios)")
	fs.IntVar(&r.Duplicate, "duplicate", r.Duplicate, "`N` GPUs of a tensor-parallel group that each dispatch all tokens; 1: they share them")
	fs.IntVar(&r.TopK, "top-k", 0, "`N` experts a token; 0: the model's")
	fs.IntVar(&r.GroupLimit, "group-limit", 0, "`N` expert groups that a token may visit; 0: the model's")
	fs.StringVar(&r.Wire, "wire", "bf16", "`FORMAT` in which tokens travel to experts: bf16 or mxfp8")
	fs.StringVar(&f.dedup, "dedup", "", "`SWITCH` that sends a token once to each rank and node: on or off; empty: as the stack does")
	fs.Float64Var(&f.hidden, "overlap", -1, "`SHARE` of the exchange that runs behind something else, 0 to 1; -1: as the stack does")
	fs.Float64Var(&r.NIC, "nic", 0, "`GB/S` of a GPU's network card, each way; 0: the GPU's")
	fs.IntVar(&r.NVLinkDomain, "nvlink-domain", 0, "`N` GPUs that NVLink joins; 0: the GPU's")
	fs.StringVar(&f.ratios, "ratios", "", "`FILE` that train --record-ratios or bench ratios has written, or several with commas between; the first has the routing")
	fs.IntVar(&f.samples, "samples", 2000, "`N` samples of the priors for intervals")
	fs.Uint64Var(&f.seed, "seed", 1, "`N` seed of those samples")
	fs.IntVar(&f.most, "layouts", 10000, "`N` layouts that project sweep looks at; 0: all")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.StringVar(&f.out, "out", "", "`FOLDER` to write a page, plots and all numbers to")
	f.hosts.define(fs)
	return f.do
}

// mostSamples keeps a mistyped number from running for ever.
const mostSamples = 1_000_000

func (f *projectFlags) do(_ context.Context, env env) error {
	if f.samples < 10 || f.samples > mostSamples {
		return fmt.Errorf("--samples is %d: give 10 to %d", f.samples, mostSamples)
	}
	if f.most < 0 {
		return fmt.Errorf("--layouts is %d: give 0 (all) or more", f.most)
	}
	what := strings.Join(env.args, " ")
	if err := f.belong(what); err != nil {
		return err
	}
	file, err := f.complete()
	if err != nil {
		return err
	}
	switch what {
	case "":
		return f.project(env, file, false)
	case "explain":
		return f.project(env, file, true)
	case "validate":
		return f.validate(env)
	case "sweep":
		return f.sweep(env)
	case "hosts":
		return f.projectHosts(env)
	default:
		return fmt.Errorf("project %q: give explain, validate, sweep or hosts, or nothing", what)
	}
}

// complete puts together the run that the flags describe, and reads the files that they name.
func (f *projectFlags) complete() (file *ratios.File, err error) {
	switch f.dedup {
	case "":
	case "on", "off":
		on := f.dedup == "on"
		f.run.Dedup = &on
	default:
		return nil, fmt.Errorf("--dedup is %q: give on or off", f.dedup)
	}
	if f.hidden != -1 {
		f.run.Hidden = &f.hidden
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
			more, err := ratios.Open(path)
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

// project prints the projection of the run, and of the headline beside it.
func (f *projectFlags) project(env env, file *ratios.File, explain bool) error {
	r, err := f.gather()
	if err != nil {
		return err
	}
	if file != nil {
		if err := f.note(&r, *file); err != nil {
			return err
		}
	}
	if f.json {
		encoder := json.NewEncoder(env.out)
		encoder.SetIndent("", " ")
		return encoder.Encode(r)
	}
	printHeadline(env.out, r)
	printBudget(env.out, r, explain)
	if f.out == "" {
		return nil
	}
	if r.Groups, err = projection.Validate(f.samples, f.seed); err != nil {
		return err
	}
	if r.Gates, err = projection.Gates(r.Groups); err != nil {
		return err
	}
	r.Excluded = projection.ExcludedRows()
	if err := projected.Write(f.out, r); err != nil {
		return failure{err, exitFailed}
	}
	fmt.Fprintf(env.out, "page: %s\n", filepath.Join(f.out, "projection.html"))
	return nil
}

// gather computes everything about the run and the headline but the validation.
func (f *projectFlags) gather() (r projected.Report, err error) {
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
	sigma, err := projection.Discrepancy()
	if err != nil {
		return r, err
	}
	if r.Range, err = projection.RunInterval(run, f.samples, f.seed, sigma); err != nil {
		return r, err
	}
	for _, s := range projection.Scenarios() {
		h, err := s.Project(set)
		if err != nil {
			return r, err
		}
		ranges, err := s.Intervals(f.samples, f.seed, sigma)
		if err != nil {
			return r, err
		}
		r.Headlines, r.Ranges = append(r.Headlines, h), append(r.Ranges, ranges)
	}
	r.Swings, err = projection.HeadlineTornado()
	return r, err
}

// note adds what a file of ratios says.
func (f *projectFlags) note(r *projected.Report, file ratios.File) error {
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

// projectChoices are the values of a flag of project that are of a fixed set.
func projectChoices(name string) []string {
	switch name {
	case "precision":
		all := projection.Precisions()
		for _, p := range moe.Precisions() { // of project hosts
			if !slices.Contains(all, p.Name) {
				all = append(all, p.Name)
			}
		}
		return all
	case "recompute":
		return projection.Recomputes()
	case "routing":
		return projection.Routings()
	case "stack":
		return projection.Stacks()
	case "wire":
		return []string{"bf16", "mxfp8"}
	case "dedup":
		return []string{"on", "off"}
	}
	return nil
}
