package trainer

import (
	"fmt"
	"testing"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// heldInStages measures what every rank of a pipeline holds in a step, except the boxes for
// messages.
func heldInStages(t *testing.T, cfg config.Config, ranks int) []events.Memory {
	t.Helper()
	each := make([]events.Memory, ranks)
	rule, err := cfg.Rule()
	if err != nil {
		t.Fatal(err)
	}
	err = collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		r, err := buildPipeline(cfg, c)
		if err != nil {
			return err
		}
		ex := tensor.NewExec()
		if err := optim.New(ex, r.Groups(), c, rule).Init(1); err != nil {
			return err
		}
		sizeArenas(cfg, r.Models, ex, cfg.LayoutOrDefault(ranks), 1)
		if _, err := r.Run(ex, squares(cfg, ranks, c.Rank())); err != nil {
			return err
		}
		m := events.Memory{Optimizer: int64(optim.StateBytes(rule, r.Groups())), Activations: int64(r.ActivationPeak(ex))}
		for _, model := range r.Models {
			m = m.Plus(heldBy(model))
		}
		each[c.Rank()] = m
		return c.Barrier()
	})
	if err != nil {
		t.Fatal(err)
	}
	return each
}

// squares returns the micro-batches of a rank.
func squares(cfg config.Config, ranks, rank int) (parts []moe.Batch) {
	tokens := make([]int32, estimate.PassTokens(cfg, ranks))
	for i := range tokens {
		tokens[i] = int32(i*i+rank) % 256
	}
	for range cfg.Passes(ranks) {
		parts = append(parts, moe.Batch{Inputs: tokens, Targets: tokens, Seq: cfg.Seq, GlobalSequences: cfg.Batch})
	}
	return parts
}

// The estimate is close to what the ranks of every place in a pipeline allocate.
func TestEstimateMemoryOfStages(t *testing.T) {
	alone := mesh.Layout{World: 2, PP: 2, DPReplicate: 1, DPShard: 1, EP: 1}
	pairs := mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 1}
	for name, c := range map[string]struct {
		schedule string
		layout   mesh.Layout
		change   func(*config.Config)
	}{
		"MTP":        {"Interleaved1F1B", alone, func(c *config.Config) { c.Model.MTPLayers = 1 }},
		"MXFP8":      {"InterleavedZeroBubble", pairs, func(c *config.Config) { c.Precision = "mxfp8" }},
		"overlapped": {"DualPipeV", pairs, func(c *config.Config) { c.PPOverlap, c.Model.Dim = true, 256 }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := measurable(t)
			cfg.Batch, cfg.PPSchedule, cfg.PPMicrobatches, cfg.Model.Layers = 16, c.schedule, 4, 4
			cfg.SetLayout(c.layout)
			c.change(&cfg)
			all, err := estimate.Holdings(cfg, c.layout.World)
			if err != nil {
				t.Fatal(err)
			}
			boxes := all[0].Boxes(1) * estimate.MessageBytes(cfg, c.layout.World)
			estimates := estimate.RankMemory(cfg, c.layout, 1)
			for rank, m := range heldInStages(t, cfg, c.layout.World) {
				m.Activations += int64(boxes)
				closeTo(estimates[c.layout.Coordinate(rank, mesh.PP)], t, fmt.Sprintf("rank %d", rank), m, 1.1)
			}
		})
	}
}
