package trainer

// Every layout gives the bits of one rank.

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint"
)

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		replicate, shard, ep int
		want                 Layout
		refused              string
	}{
		{1, -1, 0, Layout{1, 1, 8, 1, 8}, ""},
		{2, -1, 0, Layout{1, 2, 4, 1, 4}, ""},
		{2, 4, 2, Layout{1, 2, 4, 2, 2}, ""},
		{1, -1, 1, Layout{1, 1, 8, 8, 1}, ""},
		{3, -1, 0, Layout{}, "dp_replicate is 3: give a divisor of the 8 ranks: 1, 2, 4 or 8"},
		{0, -1, 0, Layout{}, "dp_replicate is 0"},
		{2, 2, 0, Layout{}, "dp_shard is 2: dp_replicate 2 times dp_shard must be the 8 ranks: give 4, or -1 for the rest"},
		{2, -1, 8, Layout{}, "ep is 8: give a divisor of dp_shard, which is 4: 1, 2 or 4"},
	} {
		cfg := Config{DPReplicate: c.replicate, DPShard: c.shard, EP: c.ep}
		got, err := cfg.Layout(8)
		if c.refused == "" && (err != nil || got != c.want) {
			t.Errorf("%d, %d, %d: %+v, %v, want %+v", c.replicate, c.shard, c.ep, got, err, c.want)
		}
		if c.refused != "" && (err == nil || !strings.HasPrefix(err.Error(), c.refused)) {
			t.Errorf("%d, %d, %d: %v, want %q", c.replicate, c.shard, c.ep, err, c.refused)
		}
	}
	if n := len(Layouts(8, 8)); n != 10 {
		t.Errorf("%d layouts of 8 ranks and 8 experts, want 10", n)
	}
	if n := len(Layouts(8, 12)); n != 9 {
		t.Errorf("%d layouts of 8 ranks and 12 experts, want 9: ep 8 divides no 12 experts", n)
	}
}

// sumOf returns the checksum of the state that a run has ended with.
func sumOf(t *testing.T, cfg Config) string {
	t.Helper()
	r, err := checkpoint.Open(filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", cfg.Steps)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sum, err := StateSum(r)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// layoutRun is a run with all parts whose sums cross ranks. Experts have few rows.
func layoutRun(t *testing.T, precision string) Config {
	return tiny(t, func(c *Config) {
		c.Precision, c.Steps, c.Seq, c.EvalSequences, c.Optimizer.ClipNorm = precision, 3, 96, 8, 0.1
		c.Model.Experts, c.Model.MTPLayers, c.Model.BalanceAlpha = 8, 1, 0.01
	})
}

func TestOneResultForAllLayouts(t *testing.T) {
	for _, precision := range []string{"bf16", "mxfp8"} {
		t.Run(precision, func(t *testing.T) {
			want := outcomeOf(t, layoutRun(t, precision), 1)
			sums := map[string]int{}
			for _, ranks := range []int{1, 2, 4, 8} {
				for _, l := range Layouts(ranks, 8) {
					cfg := layoutRun(t, precision)
					cfg.SetLayout(l)
					outcomeFrom(t, cfg, train(t, cfg, ranks, "")).equals(t, fmt.Sprintf("np %d, %v", ranks, l), want)
					sums[sumOf(t, cfg)]++
				}
			}
			if len(sums) != 1 {
				t.Errorf("the states have %d different checksums: %v", len(sums), sums)
			}
		})
	}
}

// Options of a run keep their meaning with replicas: those that change what is computed do so in the
// same way, and those that do not change nothing.
func TestReplicasWithOptions(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"capacity":     func(c *Config) { c.EPCapacity = 1.1 },
		"wires":        func(c *Config) { c.Precision, c.EPDispatch, c.EPCombine = "mxfp8", "mxfp8", "mxfp8" },
		"recompute":    func(c *Config) { c.Recompute = "full" },
		"micro-batch":  func(c *Config) { c.MicroBatch = 1 },
		"MXFP8 passes": func(c *Config) { c.Precision, c.MicroBatch, c.Recompute = "mxfp8", 1, "selective" },
		"no shared":    func(c *Config) { c.Model.SharedExperts, c.Model.BalanceAlpha = 0, 0 },
		"BF16 moments": func(c *Config) { c.Optimizer.Moments = "bf16" },
		"documents":    func(c *Config) { c.DocumentMask = true },
		"replay":       func(c *Config) { c.Guard.Replay = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			run := func(ep int) outcome {
				cfg := layoutRun(t, "bf16")
				cfg.EP = ep
				change(&cfg)
				return outcomeFrom(t, cfg, train(t, cfg, 4, ""))
			}
			want := run(4)
			for _, ep := range []int{1, 2} {
				run(ep).equals(t, fmt.Sprintf("ep %d", ep), want)
			}
		})
	}
}

// A checkpoint of any layout resumes in any other.
func TestResumeInAnotherLayout(t *testing.T) {
	whole := layoutRun(t, "mxfp8")
	want := outcomeFrom(t, whole, train(t, whole, 1, ""))
	layouts := [][2]int{{1, 1}, {2, 1}, {4, 2}, {4, 4}, {8, 2}} // ranks and ep
	for _, from := range layouts {
		saved := layoutRun(t, "mxfp8")
		saved.EP, saved.SaveEvery, saved.Keep = from[1], 1, 9
		train(t, saved, from[0], "")
		for _, to := range layouts {
			cfg := layoutRun(t, "mxfp8")
			cfg.EP = to[1]
			got := train(t, cfg, to[0], filepath.Join(saved.Out, "step-00000001"))
			o, end := outcomeFrom(t, cfg, got), want
			end.steps, end.evals, o.evals = want.steps[1:], nil, nil
			o.equals(t, fmt.Sprintf("np %d, ep %d resumed on np %d, ep %d", from[0], from[1], to[0], to[1]), end)
		}
	}
}

func TestLayoutRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"ep is 2: give a divisor of dp_shard, which is 1": func(c *Config) { c.DPReplicate, c.EP = 4, 2 },
		"experts with replicas need ep_exchange onesided": func(c *Config) { c.EP, c.EPExchange = 2, "standard" },
		"ep is 4: it does not divide 6 experts: use --ep 1 or 2": func(c *Config) {
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
	if _, err := PrepareHere(cfg, 4, 2, "", &reports{}); err == nil || !strings.Contains(err.Error(), "replicas of experts must be on one host: give --ep 4") {
		t.Errorf("on two hosts: %v", err)
	}
}
