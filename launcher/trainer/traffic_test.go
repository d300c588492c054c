package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/moe"
)

// movedByStep returns the bytes of each kind that a rank moves in the second step of a run, and
// what it sends to other hosts, the means of all ranks. Each host has some ranks.
func movedByStep(t *testing.T, hosts, each int, change func(*config.Config)) (cfg config.Config, moved map[collective.Kind]float64, sent float64) {
	t.Helper()
	moved = map[collective.Kind]float64{}
	cfg = tiny(t, change)
	var mu sync.Mutex
	count := func(r *rank, share float64) {
		mu.Lock()
		defer mu.Unlock()
		sent += share * float64(r.comm.Sent())
		for _, c := range r.links {
			for kind, s := range c.Stats() {
				moved[collective.Kind(kind)] += share * float64(s.Bytes)
			}
		}
	}
	_, err := ranksOn(t, cfg, slices.Repeat([]int{each}, hosts), "", nil, func(r *rank) error {
		defer r.checkpoints.Saver.Close()
		defer r.Data.Loader.Close()
		for _, share := range []float64{-1, 1} {
			if _, _, err := r.step(context.Background()); err != nil {
				return err
			}
			count(r, share/float64(hosts*each))
		}
		return r.comm.Barrier()
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg, moved, sent
}

// trafficCase is a run whose traffic is measured. Of several hosts, kinds are those whose bytes do
// not depend on the routes of tokens.
type trafficCase struct {
	hosts, each int
	kinds       []collective.Kind
	change      func(*config.Config)
}

// trafficCases are a few layouts of each kind, at small shapes.
func trafficCases() map[string]trafficCase {
	sums := []collective.Kind{collective.KindBuffers, collective.KindReduceScatter, collective.KindAllGatherV}
	messages := []collective.Kind{collective.KindMessage}
	dense := func(c *config.Config) {
		c.Model.DenseLayers, c.Model.DenseInter, c.Model.Vocab, c.Batch = c.Model.Layers, 512, 4096, 16
	}
	shared := func(c *config.Config) {
		dense(c)
		c.Batch, c.Seq, c.Model.Dim, c.Model.Heads = 8, 256, 128, 4
	}
	stages := func(c *config.Config) {
		c.PP, c.PPMicrobatches, c.Batch, c.Seq, c.Model.Dim = 2, 8, 32, 128, 128
	}
	replicas := func(c *config.Config) {
		c.Batch, c.Seq, c.Model.Dim, c.Model.ExpertInter, c.Model.ForceBalance = 32, 128, 128, 128, true
	}
	return map[string]trafficCase{
		"4 ranks":      {1, 4, nil, func(*config.Config) {}},
		"uneven batch": {1, 2, nil, func(c *config.Config) { c.Batch, c.MicroBatch, c.Recompute = 6, 2, moe.RecomputeFull.String() }},
		"wires":        {1, 2, nil, func(c *config.Config) { c.EPDispatch, c.EPCombine = ep.MXFP8.String(), ep.MXFP8.String() }},
		"pairs":        {1, 4, nil, func(c *config.Config) { c.DPReplicate, c.EP, c.Precision = 2, 2, "mxfp8" }},
		"cp, MTP": {1, 4, nil, func(c *config.Config) {
			c.CP, c.Seq, c.Precision, c.Model.MTPLayers, c.Model.BalanceAlpha = 2, 64, "mxfp8", 1, 0.1
		}},
		"stages, MTP": {1, 4, nil, func(c *config.Config) {
			c.PP, c.PPMicrobatches, c.PPSchedule, c.Model.MTPLayers = 2, 4, "ZBVZeroBubble", 1
		}},
		"FSDP, MXFP8": {4, 2, sums, func(c *config.Config) { dense(c); c.FSDP, c.Precision = true, "mxfp8" }},
		"cp, tp, FSDP": {2, 4, sums, func(c *config.Config) {
			shared(c)
			c.CP, c.TP, c.FSDP, c.Model.MTPLayers, c.Model.Experts = 2, 2, true, 1, 8
		}},
		"cp over hosts": {4, 2, sums, func(c *config.Config) { shared(c); c.CP, c.TP, c.FSDP, c.Recompute = 2, 2, true, "selective" }},
		"experts over hosts": {2, 2, sums, func(c *config.Config) {
			shared(c)
			c.CP, c.EP, c.Model.DenseLayers, c.Model.ForceBalance = 4, 2, 1, true
		}},
		"stages with replicas": {2, 2, messages, func(c *config.Config) { stages(c); c.EP = 1 }},
		"two stages per rank":  {2, 1, messages, func(c *config.Config) { stages(c); c.PPSchedule, c.Model.Layers = "ZBVZeroBubble", 4 }},
		"two stages per host":  {2, 2, messages, func(c *config.Config) { stages(c); c.PP, c.Model.Layers, c.Seq, c.Batch = 4, 4, 32, 8 }},
		"stages over hosts":    {4, 1, messages, func(c *config.Config) { stages(c); c.Model.DenseLayers = c.Model.Layers }},
		"replicas, passes":     {2, 2, nil, func(c *config.Config) { replicas(c); c.EP, c.Precision, c.MicroBatch = 2, "mxfp8", 2 }},
		"groups of two hosts":  {4, 2, nil, func(c *config.Config) { replicas(c); c.EP = 4 }},
		"replicas of stages":   {4, 1, messages, func(c *config.Config) { replicas(c); c.PP, c.EP, c.PPMicrobatches = 2, 1, 4 }},
	}
}

// The bytes that communicators count in a step of real training are those of the formulas, and so
// are the bytes between hosts, within one percent: each call of a collective sends some more. On
// one host, kinds that guards use as well may have more, by a small share of all bytes.
func TestTraffic(t *testing.T) {
	for name, c := range trafficCases() {
		t.Run(fmt.Sprintf("%s/%dx%d", name, c.hosts, c.each), func(t *testing.T) {
			cfg, moved, sent := movedByStep(t, c.hosts, c.each, c.change)
			all, err := estimate.LayoutTraffic(cfg, cfg.LayoutOrDefault(c.hosts*c.each), c.hosts)
			if err != nil {
				t.Fatal(err)
			}
			want, network, total, sum := map[collective.Kind]float64{}, 0.0, 0.0, 0.0
			for _, m := range all {
				want[m.Kind] += m.Memory
				total += m.Memory
				network += m.Network
			}
			for kind, bytes := range moved {
				sum += bytes
				guards := kind == collective.KindAllGather || kind == collective.KindAllReduce
				const rounding = 1e-3 // of shares of an embedding's rows
				exact := slices.Contains(c.kinds, kind) || c.hosts == 1
				if exact && (bytes < (1-rounding)*want[kind] || !guards && bytes > (1+rounding)*want[kind]) {
					t.Errorf("%v: %.0f bytes per rank, want %.0f", kind, bytes, want[kind])
				}
			}
			if c.hosts == 1 && (network != 0 || math.Abs(sum/total-1) > 0.01) {
				t.Errorf("%.0f bytes per rank, want %.0f: %.4f times as many; %g bytes between hosts", sum, total, sum/total, network)
			}
			if c.hosts > 1 && (network == 0 || math.Abs(sent/network-1) > 0.01) {
				t.Errorf("%.0f bytes sent to other hosts per rank, want %.0f: %.4f times as many", sent, network, sent/network)
			}
		})
	}
}
