package trainer

// Every layout gives the bits of one rank.

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/save"
)

// sumOf returns the checksum of the state that a run has ended with.
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

// layoutRun is a run with all parts whose sums cross ranks. Experts have so many rows that products
// of all of them and products of a replica's rows take different kernels.
func layoutRun(t *testing.T, precision string) config.Config {
	return tiny(t, func(c *config.Config) {
		c.Precision, c.Steps, c.Seq, c.EvalSequences, c.Optimizer.ClipNorm = precision, 2, 96, 8, 0.1
		c.Model.Experts, c.Model.MTPLayers, c.Model.BalanceAlpha = 16, 1, 0.01
	})
}

// The layouts have replicas of everything, of experts only, of both and of neither. Package moe
// compares the gradients of more layouts, in more precisions.
func TestOneResultForAllLayouts(t *testing.T) {
	one := layoutRun(t, "mxfp8")
	want := outcomeFrom(t, one, train(t, one, 1, ""))
	sum := sumOf(t, one)
	for _, l := range []mesh.Layout{
		{World: 2, PP: 1, DPReplicate: 2, DPShard: 1, EP: 1}, {World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 2},
		{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 4}, {World: 8, PP: 1, DPReplicate: 2, DPShard: 4, EP: 2},
	} {
		cfg := layoutRun(t, "mxfp8")
		cfg.SetLayout(l)
		outcomeFrom(t, cfg, train(t, cfg, l.World, "")).equals(t, l.Name(), want)
		if got := sumOf(t, cfg); got != sum {
			t.Errorf("%s: checksum %s, want %s", l.Name(), got, sum)
		}
	}
}

// Steps with the same number of passes have the same bits in every layout. The last pass may be
// smaller. Micro-batches are those of 8 ranks.
func TestOneResultForAllLayoutsOfPasses(t *testing.T) {
	const most = 8
	layouts := []mesh.Layout{mesh.Default(1), {World: 2, PP: 1, DPReplicate: 2, DPShard: 1, EP: 1},
		{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 2}, mesh.Default(most)}
	for name, c := range map[string]struct {
		precision           string
		batch, micro, times int
		chain               bool
	}{
		"mxfp8 2":       {"mxfp8", 2 * most, 1, 2, false},
		"bf16 2 uneven": {"bf16", 3 * most, 2, 2, false},
		"bf16 4 chain":  {"bf16", 4 * most, 1, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			var want outcome
			for i, l := range layouts {
				cfg := layoutRun(t, c.precision)
				cfg.Batch, cfg.MicroBatch, cfg.Steps, cfg.ChainPasses = c.batch, c.micro*most/l.World, 2, c.chain
				cfg.SetLayout(l)
				if got := cfg.Passes(l.World); got != c.times {
					t.Fatalf("%v: %d passes, want %d", l, got, c.times)
				}
				got := outcomeFrom(t, cfg, train(t, cfg, l.World, ""))
				if i == 0 {
					want = got
				}
				got.equals(t, fmt.Sprintf("np %d, %v", l.World, l), want)
			}
		})
	}
}

// Options of a run keep their meaning with replicas: those that change what is computed change it
// in the same way.
func TestReplicasWithOptions(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"capacity":     func(c *config.Config) { c.EPCapacity = 1.1 },
		"standard":     func(c *config.Config) { c.Precision, c.EPExchange, c.MicroBatch = "mxfp8", "standard", 1 },
		"wires":        func(c *config.Config) { c.Precision, c.EPDispatch, c.EPCombine = "mxfp8", "mxfp8", "mxfp8" },
		"recompute":    func(c *config.Config) { c.Recompute = "full" },
		"MXFP8 passes": func(c *config.Config) { c.Precision, c.MicroBatch, c.Recompute = "mxfp8", 1, "selective" },
		"no shared":    func(c *config.Config) { c.Model.SharedExperts, c.Model.BalanceAlpha = 0, 0 },
		"BF16 moments": func(c *config.Config) { c.Optimizer.Moments = "bf16" },
		"documents":    func(c *config.Config) { c.DocumentMask = true },
		"replay":       func(c *config.Config) { c.Guard.Replay = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			run := func(ep int) outcome {
				cfg := layoutRun(t, "bf16")
				cfg.EP = ep
				change(&cfg)
				got := train(t, cfg, 4, "")
				if drops := got.steps[0].Dropped > 0; drops != (cfg.EPCapacity > 0) {
					t.Errorf("%d choices were dropped", got.steps[0].Dropped)
				}
				return outcomeFrom(t, cfg, got)
			}
			run(2).equals(t, "ep 2", run(4))
		})
	}
}

// allLayouts reports whether tests shall visit all layouts that they can, not some of each kind.
func allLayouts() bool { return os.Getenv("SPMOE_LAYOUTS") == "all" }

// some returns the cases of a table that are named, and with SPMOE_LAYOUTS=all all of them.
func some[C any](all map[string]C, names ...string) map[string]C {
	if !allLayouts() {
		maps.DeleteFunc(all, func(name string, _ C) bool { return !slices.Contains(names, name) })
	}
	return all
}

// resumed lists the layouts between which checkpoints move. SPMOE_LAYOUTS=all makes it all layouts
// of 1, 2, 4 and 8 ranks.
func resumed(t *testing.T) (some []mesh.Layout) {
	t.Helper()
	all := slices.Concat(mesh.Sharing(1, 1, 1, 1, 16), mesh.Sharing(2, 1, 1, 1, 16), mesh.Sharing(4, 1, 1, 1, 16), mesh.Sharing(8, 1, 1, 1, 16))
	if allLayouts() {
		return all
	}
	for _, name := range []string{"dp1x1-ep1", "dp1x4-ep4", "dp2x2-ep2", "dp1x8-ep1"} {
		i := slices.IndexFunc(all, func(l mesh.Layout) bool { return l.Name() == name })
		if i < 0 {
			t.Fatalf("no layout is %s", name)
		}
		some = append(some, all[i])
	}
	return some
}

// A checkpoint of any layout resumes in any other: here in the next one of the list, with
// SPMOE_LAYOUTS=all in all.
func TestResumeInAnotherLayout(t *testing.T) {
	whole := layoutRun(t, "mxfp8")
	want := outcomeFrom(t, whole, train(t, whole, 1, ""))
	end := want
	end.steps, end.evals = want.steps[1:], nil
	layouts := resumed(t)
	for i, from := range layouts {
		saved := layoutRun(t, "mxfp8")
		saved.SetLayout(from)
		saved.SaveEvery, saved.Keep = 1, 9
		train(t, saved, from.World, "")
		others := layouts
		if !allLayouts() {
			next := (i + 1) % len(layouts)
			others = layouts[next : next+1]
		}
		for _, to := range others {
			cfg := layoutRun(t, "mxfp8")
			cfg.SetLayout(to)
			o := outcomeFrom(t, cfg, train(t, cfg, to.World, filepath.Join(saved.Out, "step-00000001")))
			o.evals = nil
			o.equals(t, fmt.Sprintf("saved in %s, resumed in %s", from.Name(), to.Name()), end)
		}
	}
}

func TestLayoutRefused(t *testing.T) {
	for want, change := range map[string]func(*config.Config){
		"ep 2 does not divide dp_shard 1 (ep divides dp_shard · cp · tp): the nearest legal layout is": func(c *config.Config) { c.DPReplicate, c.EP = 4, 2 },
		"dp_replicate 3 does not divide 4 ranks (world = pp · dp_replicate · dp_shard · cp · tp): no layout of 4 ranks divides a batch of 6 sequences either": func(c *config.Config) {
			c.DPReplicate, c.Batch = 3, 6
		},
		"ep 4 does not divide 6 experts": func(c *config.Config) {
			c.DPShard, c.EP, c.Model.Experts = 8, 4, 6
		},
	} {
		cfg := layoutRun(t, "bf16")
		change(&cfg)
		ranks := 4
		if cfg.DPShard == 8 {
			ranks = 8
		}
		if err := cfg.Validate(ranks); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
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
	for _, precision := range []string{"bf16", "mxfp8", "mxint8"} {
		t.Run(precision, func(t *testing.T) {
			want := outcomeOf(t, contextRun(t, precision), 1)
			sums := map[string]int{}
			for _, ranks := range []int{2, 4, 8} {
				for _, degrees := range [][2]int{{2, 1}, {4, 1}, {1, 2}, {1, 4}, {2, 2}} {
					cp, tp := degrees[0], degrees[1]
					if precision != "bf16" && (ranks != 4 || cp != tp) && !allLayouts() {
						continue
					}
					for _, l := range mesh.Sharing(ranks, 1, cp, tp, 16) {
						cfg := contextRun(t, precision)
						cfg.SetLayout(l)
						outcomeFrom(t, cfg, train(t, cfg, ranks, "")).equals(t, fmt.Sprintf("np %d, %v", ranks, l), want)
						sums[sumOf(t, cfg)]++
					}
				}
			}
			if len(sums) != 1 {
				t.Errorf("the states have %d different checksums: %v", len(sums), sums)
			}
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
		"capacity":         func(c *config.Config) { c.EPCapacity, c.Batch, c.Model.MTPLayers = 1.1, 2, 0 },
		"standard":         func(c *config.Config) { c.Precision, c.EPExchange = "mxfp8", "standard" },
		"wires":            func(c *config.Config) { c.Precision, c.EPDispatch, c.EPCombine = "mxfp8", "mxfp8", "mxfp8" },
		"recompute":        func(c *config.Config) { c.Recompute = "full" },
		"MXFP8 recompute":  func(c *config.Config) { c.Precision, c.Recompute, c.Model.DenseInter = "mxfp8", "selective", 160 },
		"no shared":        func(c *config.Config) { c.Model.SharedExperts, c.Model.BalanceAlpha, c.Model.MTPLayers = 0, 0, 0 },
		"no experts":       func(c *config.Config) { c.Model.DenseLayers = c.Model.Layers; c.Model.MTPLayers = 0 },
		"BF16 moments":     func(c *config.Config) { c.Optimizer.Moments = "bf16" },
		"documents":        func(c *config.Config) { c.DocumentMask = true },
		"replay":           func(c *config.Config) { c.Guard.Replay = 1 },
		"Muon and QK-clip": func(c *config.Config) { c.Optimizer.Name, c.Optimizer.QKClip = "muon", 0.001 },
		"fp8-block":        func(c *config.Config) { c.Precision, c.Seq, c.Model.DenseInter = "fp8-block", 256, 384 },
		"nvfp4":            func(c *config.Config) { c.Precision, c.Batch = "nvfp4", 2 },
		"fp8-tensor":       func(c *config.Config) { c.Precision, c.Batch = "fp8-tensor", 2 },
		"mxfp4":            func(c *config.Config) { c.Precision, c.Seq = "mxfp4", 256 },
		"mxfp4-e2m1": func(c *config.Config) {
			c.Precision, c.MXFP4.Hadamard, c.MXFP4.Stochastic, c.Seq = "mxfp4-e2m1", "plain", true, 256
		},
		"mxfp6":              func(c *config.Config) { c.Precision = "mxfp6-e2m3" },
		"H100":               func(c *config.Config) { c.Sum = "h100" },
		"MXFP8 of a B200":    func(c *config.Config) { c.Precision, c.Sum = "mxfp8", "b200" },
		"exact MXFP8":        func(c *config.Config) { c.Precision, c.Sum = "mxfp8", "exact" },
		"FP32":               func(c *config.Config) { c.Precision = "fp32" },
		"queries compressed": func(c *config.Config) { c.Model.QRank = 24 },
		"grouped":            func(c *config.Config) { grouped(c) },
		"grouped, recompute": func(c *config.Config) {
			grouped(c)
			c.Recompute, c.Model.QKNorm, c.Model.QKVBias, c.Model.OutputBias = "selective", true, true, true
		},
	}
}

// Options of a run keep their meaning if ranks share sequences.
func TestContextsWithOptions(t *testing.T) {
	for name, change := range contextOptions() {
		t.Run(name, func(t *testing.T) {
			run := func(l mesh.Layout) outcome {
				cfg := contextRun(t, "bf16")
				cfg.SetLayout(l)
				change(&cfg)
				if l.Sharers() == 1 { // the passes that groups of 4 ranks make
					cfg.MicroBatch = 1
				}
				got := train(t, cfg, l.World, "")
				if drops := got.steps[0].Dropped > 0; drops != (cfg.EPCapacity > 0) {
					t.Errorf("%d choices were dropped", got.steps[0].Dropped)
				}
				o := outcomeFrom(t, cfg, got)
				if cfg.EPCapacity > 0 {
					o.evals, o.sample = nil, "" // of other numbers of sequences in a pass
				}
				return o
			}
			want := run(mesh.Default(1))
			most := 4
			if name == "fp8-block" { // its blocks have 128 tokens
				most = 2
			}
			run(mesh.Layout{World: most, PP: 1, DPReplicate: 1, DPShard: 1, CP: most / 2, TP: 2, EP: 2}).equals(t, "cp, tp, ep 2", want)
			if allLayouts() {
				run(mesh.Layout{World: most, PP: 1, DPReplicate: 1, DPShard: 1, CP: most, EP: 2}).equals(t, "cp, ep 2", want)
				run(mesh.Layout{World: most, PP: 1, DPReplicate: 1, DPShard: 1, TP: most, EP: most}).equals(t, "tp, ep of all ranks", want)
			}
			if !slices.Contains([]string{"capacity", "nvfp4", "fp8-tensor"}, name) { // they depend on the sequences of a pass
				if allLayouts() {
					run(mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 1, CP: 2, EP: 2}).equals(t, "dp_replicate 2, cp 2, ep 2", want)
				}
				run(mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 1, TP: 2, EP: 1}).equals(t, "dp_replicate 2, tp 2, ep 1", want)
			}
		})
	}
}

// Checkpoints move between layouts in which ranks share sequences and those in which they do not:
// from each to the next. With SPMOE_LAYOUTS=all it visits all layouts of 2, 4 and 8 ranks in which
// at most 4 share a sequence.
func TestResumeInAnotherContext(t *testing.T) {
	whole := contextRun(t, "mxfp8")
	end := outcomeFrom(t, whole, train(t, whole, 1, ""))
	end.steps, end.evals = end.steps[1:], nil
	layouts := []mesh.Layout{
		mesh.Default(2), {World: 4, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, EP: 4},
		{World: 4, PP: 1, DPReplicate: 1, DPShard: 2, TP: 2, EP: 2}, {World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 1}, {World: 8, PP: 1, DPReplicate: 2, DPShard: 2, CP: 2, EP: 2},
	}
	if allLayouts() {
		layouts = nil
		for _, ranks := range []int{2, 8, 4} {
			for _, degrees := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {1, 4}} {
				layouts = append(layouts, mesh.Sharing(ranks, 1, degrees[0], degrees[1], 16)...)
			}
		}
		t.Logf("%d layouts", len(layouts))
	}
	for i, from := range layouts {
		saved := contextRun(t, "mxfp8")
		saved.SetLayout(from)
		saved.SaveEvery, saved.Keep = 1, 9
		train(t, saved, from.World, "")
		to := layouts[(i+1)%len(layouts)]
		cfg := contextRun(t, "mxfp8")
		cfg.SetLayout(to)
		o := outcomeFrom(t, cfg, train(t, cfg, to.World, filepath.Join(saved.Out, "step-00000001")))
		o.evals = nil
		o.equals(t, fmt.Sprintf("saved in %s, resumed in %s", from.Name(), to.Name()), end)
	}
}

func TestContextRefused(t *testing.T) {
	for want, change := range map[string]func(*config.Config){
		"seq is 96: the 2 ranks that share a sequence (cp) take whole blocks of 32 tokens each: give a multiple of 64":    func(c *config.Config) { c.Seq = 96 },
		"cp is 4: the ranks that share a sequence divide the heads of attention, and model.heads is 2":                    func(c *config.Config) { c.CP, c.Model.Heads = 4, 2 },
		"seq is 128: the 2 ranks that share a sequence (cp) take whole blocks of 128 tokens each: give a multiple of 256": func(c *config.Config) { c.Precision = "fp8-block" },
		"micro_batch is 2: the ranks that share sequences (cp) have one sequence in a pass: give 0 or 1":                  func(c *config.Config) { c.MicroBatch = 2 },
		"cp is 2: routes are recorded and replayed by whole sequences: give cp 1 and tp 1":                                func(c *config.Config) { c.RecordRoutes = true },
		"cp is 3 (cp and tp are powers of two)":       func(c *config.Config) { c.CP = 3 },
		"tp is 3 (cp and tp are powers of two)":       func(c *config.Config) { c.TP = 3 },
		"tp 4 does not divide 2 groups of cp 2 ranks": func(c *config.Config) { c.TP = 4 },
		"cp · tp is 4: the ranks that share a sequence divide the heads of attention, and model.kv_heads is 2: give degrees whose product divides it": func(c *config.Config) {
			c.TP, c.Model.KVHeads, c.Model.QRank, c.Model.KVRank = 2, 2, 0, 0
			c.Model.ValueDim = c.Model.KeyDim()
		},
		"micro_batch is 2: the ranks that share sequences (tp) have one sequence in a pass: give 0 or 1":                 func(c *config.Config) { c.CP, c.TP, c.MicroBatch = 1, 2, 2 },
		"dp_replicate 1 · dp_shard 2 does not divide a batch of 3 sequences (dp_replicate · dp_shard divides the batch)": func(c *config.Config) { c.Batch = 3 },
		"ep 4 does not divide 6 experts": func(c *config.Config) { c.Model.Experts = 6 },
	} {
		cfg := contextRun(t, "bf16")
		cfg.CP = 2
		change(&cfg)
		if err := cfg.Validate(4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
