package trainer

// Every layout gives the bits of one rank.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
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

// resumed lists the layouts between which checkpoints move. SPMOE_LAYOUTS=all makes it all layouts
// of 1, 2, 4 and 8 ranks.
func resumed(t *testing.T) (some []mesh.Layout) {
	t.Helper()
	all := slices.Concat(mesh.All(1, 16), mesh.All(2, 16), mesh.All(4, 16), mesh.All(8, 16))
	if os.Getenv("SPMOE_LAYOUTS") == "all" {
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
		if os.Getenv("SPMOE_LAYOUTS") != "all" {
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
		"ep 2 does not divide dp_shard 1 (ep divides dp_shard): the nearest legal layout is": func(c *config.Config) { c.DPReplicate, c.EP = 4, 2 },
		"dp_replicate 3 does not divide 4 ranks (world = pp · dp_replicate · dp_shard): no layout of 4 ranks divides a batch of 6 sequences either": func(c *config.Config) {
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
	cfg := layoutRun(t, "bf16")
	cfg.EP = 2
	if _, err := PrepareOn(cfg, 4, estimate.Host{Ranks: 2, Processes: 1}, "", &reports{}); err == nil ||
		!strings.Contains(err.Error(), "replicas of experts must be on one host: give --ep 4") {
		t.Errorf("on two hosts: %v", err)
	}
}
