package trainer

import (
	"context"
	"math"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/launcher/spmd"
	"spmoe/moe"
)

// counted runs ranks as goroutines and keeps their communicators.
type counted struct {
	spmd.Goroutines
	comms []*collective.Comm
}

func (c *counted) Run(f func(*collective.Comm) error) error {
	c.comms = make([]*collective.Comm, c.N)
	return c.Goroutines.Run(func(comm *collective.Comm) error {
		c.comms[comm.Rank()] = comm
		return f(comm)
	})
}

// movedBySteps returns the bytes of each kind that a rank of n moves in steps steps, the mean of
// all ranks. It compares a run with one that has as many more steps, so that all else cancels out.
func movedBySteps(t *testing.T, n, steps int, change func(*Config)) (cfg Config, moved map[collective.Kind]float64) {
	t.Helper()
	moved = map[collective.Kind]float64{}
	for sign, run := range map[float64]int{-1: steps, 1: 2 * steps} {
		cfg = tiny(t, change)
		cfg.Steps, cfg.EvalEvery = run, 0
		job, err := Prepare(cfg, n, "", &reports{})
		if err != nil {
			t.Fatal(err)
		}
		ranks := &counted{Goroutines: spmd.Goroutines{N: n}}
		if err := job.Run(context.Background(), ranks); err != nil {
			t.Fatal(err)
		}
		for _, c := range ranks.comms {
			for kind, s := range c.Stats() {
				moved[collective.Kind(kind)] += sign * float64(s.Bytes) / float64(n)
			}
		}
	}
	return cfg, moved
}

// TestTrafficIsWhatRanksMove: the bytes that communicators count in steps of real training are those
// of the formulas. Kinds that guards use as well may have more, by a small share of all bytes.
func TestTrafficIsWhatRanksMove(t *testing.T) {
	for name, c := range map[string]struct {
		ranks  int
		change func(*Config)
	}{
		"1 rank":       {1, func(*Config) {}},
		"2 ranks":      {2, func(*Config) {}},
		"4 ranks":      {4, func(*Config) {}},
		"wide":         {4, func(c *Config) { c.Model.DenseInter, c.Model.ExpertInter = 448, 96 }},
		"micro-batch":  {2, func(c *Config) { c.MicroBatch = 1 }},
		"MXFP8":        {2, func(c *Config) { c.Precision = "mxfp8" }},
		"MXFP8 parts":  {4, func(c *Config) { c.Precision = "mxfp8-experts" }},
		"FP32":         {2, func(c *Config) { c.Precision = "fp32" }},
		"MTP":          {2, func(c *Config) { c.Model.MTPLayers = 1 }},
		"wires":        {2, func(c *Config) { c.EPDispatch, c.EPCombine = ep.MXFP8.String(), ep.MXFP8.String() }},
		"recompute":    {2, func(c *Config) { c.Recompute = moe.RecomputeFull.String() }},
		"selective":    {2, func(c *Config) { c.Recompute = moe.RecomputeSelective.String() }},
		"uneven batch": {2, func(c *Config) { c.Batch, c.MicroBatch = 6, 2 }},
		"dense":        {2, func(c *Config) { c.Model.DenseLayers = c.Model.Layers }},
	} {
		t.Run(name, func(t *testing.T) {
			const steps = 3
			cfg, moved := movedBySteps(t, c.ranks, steps, c.change)
			all, err := cfg.LayoutTraffic(mesh.Default(c.ranks), 1)
			if err != nil {
				t.Fatal(err)
			}
			want, total, sum := map[collective.Kind]float64{}, 0.0, 0.0
			for _, m := range all {
				want[m.Kind] += steps * m.Memory
				total += steps * m.Memory
				if m.Network != 0 {
					t.Errorf("%s: %g bytes between hosts, of which there is one", m.Name, m.Network)
				}
			}
			for kind, bytes := range moved {
				sum += bytes
				exact := kind != collective.KindAllGather && kind != collective.KindAllReduce && kind != collective.KindBuffers
				if exact && bytes != want[kind] || bytes < 0.999*want[kind] {
					t.Errorf("%v: %.0f bytes per rank, want %.0f", kind, bytes, want[kind])
				}
			}
			if math.Abs(sum/total-1) > 0.01 {
				t.Errorf("%.0f bytes per rank, want %.0f: %.4f times as many", sum, total, sum/total)
			}
		})
	}
}
