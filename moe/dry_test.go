package moe

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/tensor"
)

// dryCase is a step to count.
type dryCase struct {
	precision         string
	world, ep, hosts  int
	cp, tp            int // 0: none
	passes, sequences int // of a rank
	stages            int // of a pipeline; 0: none
	split, fsdp, once bool
	recompute         Recompute
	wire              ep.Wire
	change            func(*Config)
}

// A dry run holds what a real one does, to the byte, on every rank.
func TestDryRun(t *testing.T) {
	base := dryCase{precision: "bf16", world: 1, ep: 1, hosts: 1, passes: 1, sequences: 2}
	for name, change := range map[string]func(*dryCase){
		"one rank":  func(*dryCase) {},
		"mxfp8":     func(c *dryCase) { c.precision = "mxfp8" },
		"nvfp4":     func(c *dryCase) { c.precision = "nvfp4" },
		"fp8-block": func(c *dryCase) { c.precision = "fp8-block" },
		"2 ranks":   func(c *dryCase) { c.world, c.ep, c.passes = 2, 2, 3 },
		"4 ranks, MTP": func(c *dryCase) {
			c.world, c.ep, c.passes, c.precision = 4, 4, 2, "mxfp8"
			c.change = func(m *Config) { m.MTPLayers = 1 }
		},
		"wires":     func(c *dryCase) { c.world, c.ep, c.wire, c.precision = 2, 2, ep.MXFP8, "mxfp8" },
		"replicas":  func(c *dryCase) { c.world, c.ep, c.passes = 4, 2, 2 },
		"split":     func(c *dryCase) { c.split, c.passes = true, 2 },
		"full":      func(c *dryCase) { c.recompute, c.world, c.ep = RecomputeFull, 2, 2 },
		"selective": func(c *dryCase) { c.recompute, c.world, c.ep, c.precision = RecomputeSelective, 2, 2, "mxfp8" },
		"2 hosts":   func(c *dryCase) { c.world, c.ep, c.hosts, c.passes = 4, 4, 2, 2 },
		"FSDP":      func(c *dryCase) { c.fsdp, c.precision, c.world, c.ep, c.hosts, c.passes = true, "mxfp8", 4, 4, 2, 2 },
		"vocabulary": func(c *dryCase) {
			c.world, c.ep = 2, 2
			c.change = func(m *Config) { m.Vocab, m.Layers, m.DenseLayers = 17001, 1, 1 }
		},
		"once, ranks":   func(c *dryCase) { c.once, c.precision, c.world, c.ep = true, "nvfp4", 2, 2 },
		"stages":        func(c *dryCase) { c.stages, c.passes, c.change = 3, 2, func(m *Config) { m.MTPLayers = 1 } },
		"stages, split": func(c *dryCase) { c.stages, c.world, c.ep, c.split, c.precision = 4, 2, 1, true, "mxfp8" },
		"grouped queries": func(c *dryCase) {
			c.world, c.ep, c.passes, c.precision, c.change = 2, 2, 2, "mxfp8", sharedKeys
		},
		"grouped queries, selective": func(c *dryCase) { c.recompute, c.split, c.change = RecomputeSelective, true, sharedKeys },
		"cp":                         func(c *dryCase) { c.world, c.ep, c.cp, c.passes, c.precision = 4, 4, 2, 2, "mxfp8" },
		"cp, MTP": func(c *dryCase) {
			c.world, c.ep, c.cp = 4, 2, 2
			c.change = func(m *Config) { m.MTPLayers, m.BalanceAlpha = 1, 0.1 }
		},
		"cp, grouped queries": func(c *dryCase) {
			c.world, c.ep, c.cp, c.recompute, c.change = 2, 2, 2, RecomputeSelective, sharedKeys
		},
		"tp": func(c *dryCase) { c.world, c.ep, c.tp, c.passes, c.precision = 4, 4, 2, 2, "mxfp8" },
		"tp, selective": func(c *dryCase) {
			c.world, c.ep, c.tp, c.recompute = 2, 2, 2, RecomputeSelective
			c.change = func(m *Config) { m.MTPLayers, m.BalanceAlpha = 1, 0.1 }
		},
		"chosen keys": func(c *dryCase) {
			c.world, c.ep, c.passes, c.precision = 2, 2, 2, "mxfp8"
			c.change = func(m *Config) { choosing(m); m.QRank, m.IndexDim = 32, 32 }
		},
		"chosen keys, once, MTP": func(c *dryCase) {
			c.once = true
			c.change = func(m *Config) { choosing(m); m.IndexerTypes, m.MTPLayers = "FSS", 1 }
		},
		"chosen keys, selective": func(c *dryCase) { c.recompute, c.split, c.change = RecomputeSelective, true, choosing },
		"chosen keys, full":      func(c *dryCase) { c.recompute, c.change = RecomputeFull, choosing },
		"warmup":                 func(c *dryCase) { c.change = func(m *Config) { choosing(m); m.IndexStage = indexWarmup } },
		"deferred":               func(c *dryCase) { c.passes = 4; c.change = func(m *Config) { m.Experts = 64 } },
		"DeepSeek-V4": func(c *dryCase) {
			c.world, c.ep, c.passes, c.precision, c.change = 2, 2, 2, "mxfp8", likeV4
		},
		"DeepSeek-V4, full": func(c *dryCase) { c.recompute, c.split, c.change = RecomputeFull, true, likeV4 },
		"DeepSeek-V4, selective": func(c *dryCase) {
			c.recompute, c.fsdp, c.world, c.ep, c.hosts, c.change = RecomputeSelective, true, 4, 4, 2, likeV4
		},
	} {
		c := base
		change(&c)
		t.Run(name, func(t *testing.T) { c.test(t) })
	}
}

func (c dryCase) test(t *testing.T) {
	const seq = 64
	cfg, err := FlavorByName("300K")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Layers, cfg.DenseInter, cfg.ForceBalance = 3, 384, true // 6 ranks divide a gradient
	if c.change != nil {
		c.change(&cfg)
	}
	precision, err := PrecisionByName(c.precision)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := mesh.Resolve(c.world, mesh.Degrees{CP: c.cp, TP: c.tp, EP: c.ep}, mesh.Model{})
	if layout.Sharers() > 1 {
		c.sequences = 1
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	err = errors.Join(collective.NewHosts(slices.Repeat([]int{c.world / c.hosts}, c.hosts)...).Run(func(comm *collective.Comm) error {
		dry := DryMesh(layout, c.hosts, comm.Rank())
		dry.FSDP = c.fsdp
		on, err := NewMesh(comm, layout)
		if err != nil {
			return err
		}
		on.FSDP = c.fsdp
		options := ep.Options{Dispatch: c.wire, CombineBackward: c.wire}
		exchange, err := on.NewExchange("onesided", cfg.Experts, options)
		if err != nil {
			return err
		}
		stages, err := cfg.Stages(max(c.stages, 1), seq)
		if err != nil {
			return err
		}
		for _, stage := range stages {
			d, err := NewDryRun(dry, cfg, precision, seq, options, stage, c.once)
			if err != nil {
				return err
			}
			d.Recompute = c.recompute
			if err := d.Step(slices.Repeat([]int{c.sequences}, c.passes), seq, c.split, func() {}); err != nil {
				return err
			}
			m, err := NewStage(on, cfg, precision, seq, exchange, stage)
			if err != nil {
				return err
			}
			ex := tensor.NewExec()
			m.Recompute, ex.First, m.PassBytes, m.sums.rows.First = c.recompute, 2*d.Ex.Peak(), 2*d.arenas.peak(), 2*d.sums.rows.Peak()
			if err := c.step(m, ex, comm.Rank(), seq); err != nil {
				return err
			}
			mu.Lock()
			for what, n := range map[string][2]int{
				"scratch memory": {d.Ex.Peak(), ex.Peak()}, "saved activations": {d.arenas.peak(), m.arenas.peak()}, "rows": {d.sums.rows.Peak(), m.sums.rows.Peak()},
			} {
				if n[0] != n[1] {
					t.Errorf("rank %d, stage %+v: %d bytes of %s in a dry run, %d in a real one", comm.Rank(), stage, n[0], what, n[1])
				}
			}
			mu.Unlock()
		}
		return nil
	})...)
	if err != nil {
		t.Fatal(err)
	}
}

// step makes the passes of a rank through a stage.
func (c dryCase) step(m *Model, ex *tensor.Exec, rank, seq int) error {
	tokens := make([]int32, c.sequences*seq)
	for i := range tokens {
		tokens[i] = int32(i*i+rank) % 256
	}
	row := tensor.New(m.DType(), len(tokens), m.Config.Dim)
	for i := range c.passes {
		b := Batch{Inputs: tokens, Targets: tokens, Seq: seq, GlobalSequences: 1, More: i < c.passes-1}
		p, err := m.ForwardStage(ex, b, i, Boundary{row, row, row})
		if err != nil {
			return err
		}
		if !m.stage.Predict {
			p.SetGradient(ex, p.Output())
		}
		backward := p.BackwardLayers
		if c.split {
			backward = p.BackwardInput
		}
		if err := backward(ex); err != nil {
			return err
		}
		if err := p.BackwardWeight(ex); err != nil {
			return err
		}
	}
	return nil
}
