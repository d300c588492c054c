package trainer

// Every layout gives the bits of one rank, on one host and on several, and resumes the checkpoints
// of every other. Package moe compares the gradients of more layouts, in more precisions, and
// package pipe all schedules.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"spmoe/collective/heap"
	"spmoe/collective/mesh"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/save"
)

// placed is a layout on hosts with these numbers of ranks; without any, on the ranks of one job.
// Without a pipeline, schedule is empty.
type placed struct {
	hosts    []int
	schedule string
	layout   mesh.Layout
	change   func(*config.Config)
}

func (p placed) String() string {
	text := p.layout.Name() + p.schedule
	if p.hosts != nil {
		text = fmt.Sprintf("%s on hosts of %v", text, p.hosts)
	}
	return text
}

// configure sets the layout of a run.
func (p placed) configure(cfg config.Config) config.Config {
	if cfg.SetLayout(p.layout); p.layout.PP > 1 {
		cfg.PPSchedule = p.schedule
	}
	if cfg.MicroBatch /= p.layout.Batch(); p.layout.Sharers() > 1 {
		cfg.MicroBatch = 0 // a sequence per pass
	}
	if p.change != nil {
		p.change(&cfg)
	}
	return cfg
}

// sizes are the numbers of ranks on the hosts.
func (p placed) sizes() []int {
	if p.hosts == nil {
		return []int{p.layout.World}
	}
	return p.hosts
}

// outcome trains a configuration on the hosts, which share the run's folder.
func (p placed) outcome(t *testing.T, cfg config.Config, from string) outcome {
	t.Helper()
	o, _ := outcomeOn(t, cfg, p.sizes(), from, nil)
	return o
}

// onOneHost places layouts on the ranks of one job.
func onOneHost(layouts ...mesh.Layout) (all []placed) {
	for _, l := range layouts {
		all = append(all, placed{layout: l})
	}
	return all
}

// onEqualHosts places the default layout on hosts with as many ranks each.
func onEqualHosts(hosts, each int, fsdp bool) placed {
	return placed{
		hosts: slices.Repeat([]int{each}, hosts), layout: mesh.Default(hosts * each),
		change: func(c *config.Config) { c.FSDP = fsdp },
	}
}

// sameBits trains a run on one rank and in each place. The reports and the states must be the same.
// It returns those of one rank.
func sameBits(t *testing.T, run func() config.Config, places []placed) outcome {
	t.Helper()
	want := reference(t, run())
	for _, p := range places {
		t.Run(p.String(), func(t *testing.T) {
			p.outcome(t, p.configure(run()), "").equals(t, p.String(), want)
		})
	}
	return want
}

// resumesAnywhere saves a run in each place after its first step, and resumes it in the next one of
// the list; with SPMOE_LAYOUTS=all in all. Each ends as the run on one rank that did not stop.
func resumesAnywhere(t *testing.T, run func() config.Config, places []placed) {
	t.Helper()
	want := reference(t, run())
	last := func(o outcome) []float64 { return o.evals[len(o.evals)-1:] }
	want.steps, want.evals = want.steps[1:], last(want)
	stopped, stop := context.WithCancel(t.Context()) // a step is made all the same
	stop()
	for i, from := range places {
		saved := from.configure(run())
		_, err := ranksOn(t, saved, from.sizes(), "", nil, func(r *rank) error { return r.run(stopped) })
		if err != nil {
			t.Fatal(err)
		}
		others := places
		if !allLayouts() {
			next := (i + 1) % len(places)
			others = places[next : next+1]
		}
		for _, to := range others {
			got := to.outcome(t, to.configure(run()), filepath.Join(saved.Out, "step-00000001"))
			got.evals = last(got)
			got.equals(t, fmt.Sprintf("saved in %v, resumed in %v", from, to), want)
		}
	}
}

// sumOf returns the checksum of the state in the last checkpoint of a run.
func sumOf(t *testing.T, cfg config.Config) string {
	t.Helper()
	r, err := checkpoint.Open(filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", cfg.Steps)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sums, err := save.ReadStateSums(r)
	if err != nil {
		t.Fatal(err)
	}
	return sums.All
}

// everySecond returns every second place, or with SPMOE_LAYOUTS=all each.
func everySecond(all ...placed) (some []placed) {
	for i, p := range all {
		if i%2 == 0 || allLayouts() {
			some = append(some, p)
		}
	}
	return some
}

// allLayouts reports whether tests shall visit all layouts that they can, not some of each kind.
func allLayouts() bool { return os.Getenv("SPMOE_LAYOUTS") == "all" }

// layoutRun is a run with all parts whose sums cross ranks. Experts have so many rows that products
// of all of them and products of a replica's rows take different kernels.
func layoutRun(t *testing.T, precision string) config.Config {
	return tiny(t, func(c *config.Config) {
		c.Precision, c.Steps, c.Seq, c.EvalSequences, c.Optimizer.ClipNorm = precision, 2, 96, 8, 0.1
		c.Model.Experts, c.Model.MTPLayers, c.Model.BalanceAlpha = 16, 1, 0.01
	})
}

// The layouts have replicas of everything, of experts only, of both and of neither.
var replicated = onOneHost(
	mesh.Layout{World: 2, PP: 1, DPReplicate: 2, DPShard: 1, EP: 1}, mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 2},
	mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 4}, mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 4, EP: 2},
)

// Steps with the same number of passes have the same bits in every layout. The last pass may be
// smaller.
func TestOneResultForAllLayouts(t *testing.T) {
	passes := []placed{replicated[0], replicated[1], {layout: mesh.Default(8)}}
	for name, c := range map[string]struct {
		precision string
		places    []placed
		change    func(*config.Config)
	}{
		"one pass":            {"mxfp8", replicated, func(*config.Config) {}},
		"two passes":          {"mxfp8", passes, func(c *config.Config) { c.Batch, c.MicroBatch = 16, 8 }},
		"two uneven passes":   {"bf16", passes, func(c *config.Config) { c.Batch, c.MicroBatch = 24, 16 }},
		"7 sequences a rank":  {"mxfp8", passes, func(c *config.Config) { c.Batch, c.Seq = 56, 32 }},
		"four chained passes": {"bf16", passes, func(c *config.Config) { c.Batch, c.MicroBatch, c.ChainPasses = 32, 8, true }},
	} {
		t.Run(name, func(t *testing.T) {
			sameBits(t, func() config.Config {
				cfg := layoutRun(t, c.precision)
				c.change(&cfg)
				return cfg
			}, c.places)
		})
	}
}

// Runs on 1, 2, 4 and 8 ranks have the same bits, with other kernels, another exchange and on one
// core. Ranks poll and help each other here, as they do outside of tests.
func TestOneResultForAllRanks(t *testing.T) {
	t.Setenv(heap.ParkVar, "")
	for _, precision := range []string{"bf16", "mxfp8-experts"} {
		t.Run(precision, func(t *testing.T) {
			run := func() config.Config {
				cfg := layoutRun(t, precision)
				cfg.Model.Experts = 8
				return cfg
			}
			places := onOneHost(mesh.Default(2), mesh.Default(4), mesh.Default(8))
			if precision == "bf16" {
				standard := func(c *config.Config) { c.EPExchange = "standard" }
				places = append(places, placed{layout: mesh.Default(2), change: standard})
			}
			want, other := sameBits(t, run, places), run()
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			outcomeOf(t, other, 4).equals(t, "np 4 on one core", want)
			if other.Seed++; outcomeOf(t, other, 2).state == want.state {
				t.Error("another seed ends in the same weights")
			}
		})
	}
}

// contextRun is layoutRun with few sequences that up to 4 ranks can share, and as many heads.
func contextRun(t *testing.T, precision string) config.Config {
	cfg := layoutRun(t, precision)
	cfg.Seq, cfg.Batch, cfg.EvalSequences, cfg.Model.Heads = 128, 4, 4, 4
	return cfg
}

// Ranks that share sequences, and those that also share products, have the bits of one rank.
func TestOneResultForSharedSequences(t *testing.T) {
	for _, precision := range []string{"bf16", "mxfp8"} {
		t.Run(precision, func(t *testing.T) {
			var places []placed
			for _, ranks := range []int{2, 4, 8} {
				for _, degrees := range [][2]int{{2, 1}, {4, 1}, {1, 2}, {1, 4}, {2, 2}} {
					layouts := onOneHost(mesh.Sharing(ranks, 1, degrees[0], degrees[1], 16)...)
					if len(layouts) > 0 && ranks > 2 && !allLayouts() {
						layouts = layouts[len(layouts)-1:]
					}
					if precision == "bf16" || ranks == 4 && degrees[0] == degrees[1] || allLayouts() {
						places = append(places, layouts...)
					}
				}
			}
			sameBits(t, func() config.Config { return contextRun(t, precision) }, places)
		})
	}
}

// contextOptions are options of runs whose ranks share sequences.
func contextOptions() map[string]func(*config.Config) {
	grouped := func(c *config.Config) {
		c.Model.KVHeads, c.Model.QRank, c.Model.KVRank = 4, 0, 0
		c.Model.Heads, c.Model.ValueDim = 8, c.Model.KeyDim()
	}
	return map[string]func(*config.Config){
		"capacity":         func(c *config.Config) { c.EPCapacity, c.Batch, c.Model.MTPLayers, c.Steps = 1.1, 2, 0, 2 },
		"wires":            func(c *config.Config) { c.Precision, c.EPDispatch, c.EPCombine = "mxfp8", "mxfp8", "mxfp8" },
		"recompute":        func(c *config.Config) { c.Recompute = "full" },
		"MXFP8 recompute":  func(c *config.Config) { c.Precision, c.Recompute, c.Model.DenseInter = "mxfp8", "selective", 160 },
		"no shared":        func(c *config.Config) { c.Model.SharedExperts, c.Model.BalanceAlpha, c.Model.MTPLayers = 0, 0, 0 },
		"no experts":       func(c *config.Config) { c.Model.DenseLayers = c.Model.Layers; c.Model.MTPLayers = 0 },
		"documents":        func(c *config.Config) { c.DocumentMask = true },
		"replay":           func(c *config.Config) { c.Guard.Replay = 1 },
		"Muon and QK-clip": func(c *config.Config) { c.Optimizer.Name, c.Optimizer.QKClip, c.Steps = "muon", 0.001, 2 },
		"fp8-block":        func(c *config.Config) { c.Precision, c.Seq, c.Model.DenseInter = "fp8-block", 256, 384 },
		"nvfp4":            func(c *config.Config) { c.Precision, c.Batch = "nvfp4", 2 },
		"fp8-tensor":       func(c *config.Config) { c.Precision, c.Batch = "fp8-tensor", 2 },
		"mxfp4":            func(c *config.Config) { c.Precision, c.Seq = "mxfp4", 256 },
		"mxfp4-e2m1": func(c *config.Config) {
			c.Precision, c.MXFP4.Hadamard, c.MXFP4.Stochastic, c.Seq = "mxfp4-e2m1", "plain", true, 256
		},
		"MXFP8 of a B200": func(c *config.Config) { c.Precision, c.Sum = "mxfp8", "b200" },
		"grouped, recompute": func(c *config.Config) {
			grouped(c)
			c.Recompute, c.Model.QKNorm, c.Model.QKVBias, c.Model.OutputBias = "selective", true, true, true
		},
	}
}

// outcomeWithOptions trains and checks that choices are dropped if a capacity is set. Evaluations
// and samples then depend on the number of sequences in a pass.
func outcomeWithOptions(t *testing.T, sizes []int, cfg config.Config) outcome {
	t.Helper()
	o, got := outcomeOn(t, cfg, sizes, "", nil)
	if drops := got.steps[0].Dropped > 0; drops != (cfg.EPCapacity > 0) {
		t.Errorf("%d choices were dropped", got.steps[0].Dropped)
	}
	if cfg.EPCapacity > 0 {
		o.evals, o.sample = nil, ""
	}
	return o
}

// Options of a run keep their meaning if ranks share sequences on several hosts. Those about what
// ranks exchange do so on one host too.
func TestContextsWithOptions(t *testing.T) {
	both := mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 2}
	for name, change := range contextOptions() {
		t.Run(name, func(t *testing.T) {
			run := func(p placed) outcome {
				cfg := contextRun(t, "bf16")
				cfg.Steps = 1 // of several passes
				cfg.SetLayout(p.layout)
				change(&cfg)
				if cfg.Model.DenseInter = max(cfg.Model.DenseInter, 256); p.layout.Sharers() == 1 {
					cfg.MicroBatch = 1 // the passes of ranks that share them
				}
				return outcomeWithOptions(t, p.sizes(), cfg)
			}
			shared, hosts := both, []int{2, 2}
			if name == "fp8-block" { // its blocks have 128 tokens
				shared, hosts = mesh.Layout{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, TP: 2, EP: 2}, []int{1, 1}
			}
			places := []placed{{hosts: hosts, layout: shared}}
			if exchanged := []string{"capacity", "wires", "replay", "Muon and QK-clip", "fp8-tensor"}; allLayouts() || slices.Contains(exchanged, name) {
				places = append(places, onOneHost(shared)...)
			}
			if allLayouts() && !slices.Contains([]string{"capacity", "nvfp4", "fp8-tensor"}, name) { // they depend on the sequences of a pass
				places = append(places, onOneHost(mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 1, TP: 2, EP: 1})...)
			}
			want := run(placed{layout: mesh.Default(1)})
			for _, p := range places {
				run(p).equals(t, p.String(), want)
			}
		})
	}
}

// Checkpoints move between layouts: replicas, ranks that share sequences, stages, and hosts.
func TestResumeInAnotherLayout(t *testing.T) {
	layouts := onOneHost(mesh.Default(1), mesh.Default(4), replicated[3].layout, mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 8, EP: 1})
	contexts := onOneHost(
		mesh.Default(2), mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, EP: 4}, mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 1},
	)
	if allLayouts() {
		layouts = onOneHost(slices.Concat(mesh.Sharing(1, 1, 1, 1, 16), mesh.Sharing(2, 1, 1, 1, 16), mesh.Sharing(4, 1, 1, 1, 16), mesh.Sharing(8, 1, 1, 1, 16))...)
		contexts = onOneHost(slices.Concat(mesh.Sharing(2, 1, 2, 1, 16), mesh.Sharing(8, 1, 2, 2, 16), mesh.Sharing(4, 1, 4, 1, 16))...)
	}
	for name, c := range map[string]struct {
		run    func(*testing.T, string) config.Config
		places []placed
	}{
		"replicas": {layoutRun, layouts},
		"contexts": {contextRun, contexts},
		"stages": {pipelineRun, []placed{
			{layout: mesh.Default(1)}, {schedule: "1F1B", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 1}},
			{schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 4, PP: 4, DPReplicate: 1, DPShard: 1, EP: 1}},
		}},
		"layouts on hosts": {hostsRun, everySecond(
			placed{layout: mesh.Default(1)}, stagesOnHosts[2], stagesOnHosts[9], replicasOnHosts[2], replicasOnHosts[4], sharingOnHosts[0], sharingOnHosts[1], splitOnHosts[3], splitOnHosts[1],
		)},
	} {
		t.Run(name, func(t *testing.T) {
			resumesAnywhere(t, func() config.Config { return c.run(t, "mxfp8") }, c.places)
		})
	}
}

// optimizerRuns are runs with the state of each optimizer.
func optimizerRuns(t *testing.T) map[string]func() config.Config {
	with := func(precision string, change func(*config.Config)) func() config.Config {
		return func() config.Config {
			cfg := layoutRun(t, precision)
			change(&cfg)
			return cfg
		}
	}
	return map[string]func() config.Config{
		"Muon": with("bf16", func(c *config.Config) { useMuon(&c.Optimizer) }),
		"Muon of DeepSeek-V4": func() config.Config {
			cfg := v4Run(t, "bf16")
			cfg.Seq, cfg.Optimizer.Name, cfg.Optimizer.Scale = 32, "muon", "deepseek_v4"
			return cfg
		},
		"BF16 moments": with("bf16", func(c *config.Config) { c.Optimizer.Moments = "bf16" }),
	}
}

// The state of every optimizer is the same in each kind of layout, and moves between them.
func TestOneResultForAllOptimizers(t *testing.T) {
	places := []placed{
		{layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 2, EP: 1}}, onEqualHosts(2, 2, true), {layout: mesh.Default(4)},
		{schedule: "1F1B", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2}},
	}
	for name, run := range optimizerRuns(t) {
		t.Run(name, func(t *testing.T) {
			sameBits(t, run, places[:2])
			resumesAnywhere(t, run, places)
		})
	}
}
