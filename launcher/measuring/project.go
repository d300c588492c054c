package measuring

// project: the throughput of a recipe on a cluster of GPUs, with an interval and its terms.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"

	"spmoe/bench/projection"
	"spmoe/launcher/cli"
	"spmoe/launcher/system"
)

// projectFlags are the flags of project.
type projectFlags struct {
	run      projection.Run
	hardware string
	json     bool
	set      *flag.FlagSet
}

// define defines the named flags, or all.
func (f *projectFlags) define(fs *flag.FlagSet, names ...string) {
	f.run, f.set = projection.Target(), fs
	r, all := &f.run, flag.NewFlagSet("", flag.ContinueOnError)
	or := func(list []string) string { return strings.Join(list, ", ") }
	all.StringVar(&r.Model, "model", r.Model, "`NAME` built-in or published model, or a file NAME.json in the form of an entry of bench/projection/data/models.json")
	all.IntVar(&r.Layers, "layers", 0, "`N` transformer layers; 0: the model's")
	all.StringVar(&r.GPU, "gpu", r.GPU, "`KIND` kind of GPU: "+or(projection.GPUs()))
	all.StringVar(&f.hardware, "hardware", "", "`FILE` describe another GPU by FILE, in the form of an entry of bench/projection/data/gpus.json")
	all.IntVar(&r.GPUs, "gpus", r.GPUs, "`N` number of GPUs")
	all.StringVar(&r.Precision, "precision", r.Precision, "`NAME` number formats: bf16, mxfp8-experts (grouped GEMMs), mxfp8 or nvfp4 (all linears) or fp8 (on Hopper)")
	all.IntVar(&r.Seq, "seq", r.Seq, "`N` tokens per sequence")
	all.IntVar(&r.Batch, "batch", r.Batch, "`N` sequences per optimizer step over all GPUs")
	all.IntVar(&r.MicroBatch, "micro-batch", r.MicroBatch, "`N` sequences per forward and backward pass")
	all.BoolVar(&r.MTP, "mtp", r.MTP, "include the multi-token prediction module")
	all.IntVar(&r.TP, "tp", r.TP, "`N` tensor-parallel degree, in GPUs")
	all.IntVar(&r.CP, "cp", 1, "`N` context-parallel degree, in GPUs")
	all.IntVar(&r.PP, "pp", r.PP, "`N` pipeline-parallel degree, in GPUs")
	all.IntVar(&r.VP, "vp", r.VP, "`N` interleaved pipeline stages per GPU")
	all.IntVar(&r.EP, "ep", r.EP, "`N` expert-parallel degree, in GPUs")
	all.StringVar(&r.Recompute, "recompute", r.Recompute, "`WHAT` recompute activations in the backward pass: none, selective, titan_op "+
		"(TorchTitan's selective checkpointing of operations), full, or modules joined by +: "+or(projection.Modules()))
	all.StringVar(&r.Software, "software", r.Software, "`KIND` software of the run: megatron (Megatron-Core, TransformerEngine), pytorch (fused permutation: AutoModel, later TorchTitan) or torchtitan (up to March 2026)")
	all.StringVar(&r.Exchange, "exchange", r.Exchange, "`KIND` exchange of tokens: standard (all copies of a token) or dedup (one per rank and node: DeepEP, HybridEP)")
	all.BoolVar(&r.Overlap, "overlap", false, "hide the exchange behind computation")
	all.StringVar(&r.Graphs, "graphs", "", "`KIND` CUDA graphs: none, partial (attention and router) or full; empty: none")
	all.BoolVar(&r.FSDP, "fsdp", true, "shard weights instead of a pipeline; without the flag: pytorch does")
	all.Float64Var(&r.Untuned, "untuned", 0, "`SHARE` share of the framework's optimizations that are off, 0 to 1")
	all.StringVar(&r.Routing, "routing", r.Routing, "`MODE` choices of the router: round_robin (forced balance), uniform (random) or natural (with --imbalance)")
	all.Float64Var(&r.Imbalance, "imbalance", 0, "`RATIO` most loaded rank over the mean, with --routing natural")
	all.BoolVar(&r.Deterministic, "deterministic", false, "deterministic kernels on the GPU")
	all.IntVar(&r.Duplicate, "duplicate", 1, "`N` GPUs of a tensor-parallel group that each dispatch all tokens; 1: they share the tokens")
	all.IntVar(&r.TopK, "top-k", 0, "`N` experts per token; 0: the model's")
	all.IntVar(&r.GroupLimit, "group-limit", 0, "`N` expert groups that a token may visit; 0: the model's")
	all.Float64Var(&r.NIC, "nic", 0, "`GB/S` bandwidth of a GPU's network card, each way; 0: the GPU's")
	all.IntVar(&r.NVLinkDomain, "nvlink-domain", 0, "`N` GPUs per NVLink domain; 0: the GPU's")
	all.BoolVar(&f.json, "json", false, "print JSON")
	if len(names) == 0 {
		all.VisitAll(func(one *flag.Flag) { names = append(names, one.Name) })
	}
	cli.SelectFlags(fs, all, names)
}

// DefineProject defines the flags of project.
func DefineProject(fs *flag.FlagSet) cli.Action { return defineProjection(fs, false) }

// defineProjection is project, or with explain project explain.
func defineProjection(fs *flag.FlagSet, explain bool) cli.Action {
	f := &projectFlags{}
	f.define(fs)
	return cli.NoArguments(func(_ context.Context, env cli.Env) error {
		if err := f.complete(); err != nil {
			return err
		}
		return f.project(env, explain)
	})
}

// ProjectCommands are the subcommands of project.
func ProjectCommands() []cli.Command {
	return []cli.Command{
		{
			Name:     "project explain",
			About:    "print a projection with the formula and the constants of each term",
			Examples: []string{"project explain --exchange dedup --precision mxfp8-experts --duplicate 2"},
			Define:   func(fs *flag.FlagSet) cli.Action { return defineProjection(fs, true) },
		},
		{
			Name:     "project validate",
			About:    "print how far the formula is off on published runs of frameworks that it was not fitted to",
			Examples: []string{"project validate"},
			Define: func(fs *flag.FlagSet) cli.Action {
				f := &projectFlags{}
				f.define(fs, "json")
				return cli.NoArguments(func(_ context.Context, env cli.Env) error { return f.validate(env) })
			},
		},
	}
}

// complete completes the run that the flags describe from the files that they name.
func (f *projectFlags) complete() error {
	if err := f.readModel(); err != nil {
		return err
	}
	f.adapt()
	if f.hardware == "" {
		return nil
	}
	text, err := system.ReadFile(f.hardware, 1<<20)
	if err != nil {
		return fmt.Errorf("--hardware: %w", err)
	}
	h, err := projection.ParseHardware(f.hardware, text)
	f.run.Hardware, f.run.GPU = &h, h.Name
	return err
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
	f.run.Shape, f.run.Model = &m, m.Name
	return err
}

// adapt replaces defaults that other flags make wrong. Those of the layout are of 256 GPUs. One
// host has no pipeline and no tensor parallelism, experts on all GPUs that divide them, and one
// micro-batch per step. Only plain PyTorch shards weights unless the flag says so.
func (f *projectFlags) adapt() {
	r, given := &f.run, map[string]bool{}
	f.set.Visit(func(one *flag.Flag) { given[one.Name] = true })
	if !given["fsdp"] {
		r.FSDP = r.Software != "megatron"
	}
	if r.GPUs > 8 || r.GPUs < 1 {
		return
	}
	for _, d := range []struct {
		flag  string
		to    *int
		value int
	}{
		{"tp", &r.TP, 1}, {"pp", &r.PP, 1}, {"vp", &r.VP, 1},
		{"ep", &r.EP, gcd(r.GPUs, r.Experts())}, {"batch", &r.Batch, r.MicroBatch * r.GPUs},
	} {
		if !given[d.flag] {
			*d.to = d.value
		}
	}
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}

// projected is the result of a projection.
type projected struct {
	Budget    projection.Budget
	Published []publishedRun // that resemble it
}

// publishedRun is a published run and what the formula gives for it.
type publishedRun struct {
	ID, Framework        string
	Published, Projected float64 // tokens/s per GPU
	Low, High            float64
}

// project prints the projection of the run next to published rows that resemble it.
func (f *projectFlags) project(env cli.Env, explain bool) (err error) {
	var r projected
	if r.Budget, err = projection.Project(f.run); err != nil {
		return err
	}
	const shown = 8
	for _, row := range projection.Beside(f.run, shown) {
		b, err := projection.Project(row.Run)
		if err != nil {
			return fmt.Errorf("published run %s: %w", row.ID, err)
		}
		r.Published = append(r.Published, publishedRun{row.ID, row.Framework, row.Published, b.Tokens, b.Low, b.High})
	}
	if f.json {
		return printJSON(env.Out, r)
	}
	printBudget(env.Out, r, explain)
	return nil
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(v)
}
