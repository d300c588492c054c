package trainer

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/moe"
)

// movedBySteps returns the bytes of each kind that a rank moves in steps steps, and what it sends
// to other hosts, the means of all ranks. Each host has some ranks. It compares a run with one that
// has as many more steps, so that all else cancels out.
func movedBySteps(t *testing.T, hosts, each, steps int, change func(*config.Config)) (cfg config.Config, moved map[collective.Kind]float64, sent float64) {
	t.Helper()
	moved = map[collective.Kind]float64{}
	for sign, run := range map[float64]int{-1: steps, 1: 2 * steps} {
		cfg = tiny(t, change)
		cfg.Steps, cfg.EvalEvery = run, 0
		share := sign / float64(hosts*each)
		var mu sync.Mutex
		onHosts(t, cfg, hosts, each, nil, func(r *rank) error {
			err := r.run(context.Background())
			mu.Lock()
			defer mu.Unlock()
			sent += share * float64(r.comm.Sent())
			for _, c := range r.links {
				for kind, s := range c.Stats() {
					moved[collective.Kind(kind)] += share * float64(s.Bytes)
				}
			}
			return err
		})
	}
	return cfg, moved, sent
}

// The bytes that communicators count in steps of real training are those of the formulas. Kinds
// that guards use as well may have more, by a small share of all bytes.
func TestTrafficIsWhatRanksMove(t *testing.T) {
	for name, c := range some(map[string]struct {
		ranks  int
		change func(*config.Config)
	}{
		"1 rank":       {1, func(*config.Config) {}},
		"1, 8 passes":  {1, func(c *config.Config) { c.MicroBatch = 1 }},
		"2 ranks":      {2, func(*config.Config) {}},
		"4 ranks":      {4, func(*config.Config) {}},
		"wide":         {4, func(c *config.Config) { c.Model.DenseInter, c.Model.ExpertInter = 448, 96 }},
		"micro-batch":  {2, func(c *config.Config) { c.MicroBatch = 1 }},
		"MXFP8":        {2, func(c *config.Config) { c.Precision = "mxfp8" }},
		"MXFP8 parts":  {4, func(c *config.Config) { c.Precision = "mxfp8-experts" }},
		"FP32":         {2, func(c *config.Config) { c.Precision = "fp32" }},
		"MTP":          {2, func(c *config.Config) { c.Model.MTPLayers = 1 }},
		"wires":        {2, func(c *config.Config) { c.EPDispatch, c.EPCombine = ep.MXFP8.String(), ep.MXFP8.String() }},
		"recompute":    {2, func(c *config.Config) { c.Recompute = moe.RecomputeFull.String() }},
		"selective":    {2, func(c *config.Config) { c.Recompute = moe.RecomputeSelective.String() }},
		"uneven batch": {2, func(c *config.Config) { c.Batch, c.MicroBatch = 6, 2 }},
		"replicas":     {4, func(c *config.Config) { c.EP = 1 }},
		"pairs":        {4, func(c *config.Config) { c.DPReplicate, c.EP, c.Precision = 2, 2, "mxfp8" }},
		"pairs, parts": {4, func(c *config.Config) { c.EP, c.MicroBatch = 2, 1 }},
		"cp":           {2, func(c *config.Config) { c.CP, c.Seq = 2, 64 }},
		"cp, MTP": {4, func(c *config.Config) {
			c.CP, c.Seq, c.Precision, c.Model.MTPLayers, c.Model.BalanceAlpha = 2, 64, "mxfp8", 1, 0.1
		}},
		"cp, replicas": {4, func(c *config.Config) { c.CP, c.EP, c.Seq, c.Recompute = 2, 1, 64, "selective" }},
		"tp":           {2, func(c *config.Config) { c.TP, c.Seq, c.Precision = 2, 64, "mxfp8" }},
		"cp, tp":       {4, func(c *config.Config) { c.CP, c.TP, c.EP, c.Seq, c.Model.Heads, c.Model.MTPLayers = 2, 2, 1, 128, 4, 1 }},
		"dense":        {2, func(c *config.Config) { c.Model.DenseLayers = c.Model.Layers }},
		"cp, stages":   {4, func(c *config.Config) { c.PP, c.CP, c.Seq, c.Model.MTPLayers = 2, 2, 64, 1 }},
		"stages":       {2, func(c *config.Config) { c.PP, c.PPMicrobatches = 2, 4 }},
		"stages, MTP": {4, func(c *config.Config) {
			c.PP, c.PPMicrobatches, c.PPSchedule, c.Model.MTPLayers = 2, 4, "ZBVZeroBubble", 1
		}},
	}, "4 ranks", "pairs", "cp, MTP", "tp", "stages, MTP") {
		t.Run(name, func(t *testing.T) {
			const steps = 1
			cfg, moved, _ := movedBySteps(t, 1, c.ranks, steps, c.change)
			all, err := estimate.LayoutTraffic(cfg, cfg.LayoutOrDefault(c.ranks), 1)
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
				guards := kind == collective.KindAllGather || kind == collective.KindAllReduce
				rounding := 0.0 // of shares of an embedding's rows
				if kind == collective.KindBuffers {
					rounding = 1e-3
				}
				if bytes < (1-rounding)*want[kind] || !guards && bytes > (1+rounding)*want[kind] {
					t.Errorf("%v: %.0f bytes per rank, want %.0f", kind, bytes, want[kind])
				}
			}
			if math.Abs(sum/total-1) > 0.01 {
				t.Errorf("%.0f bytes per rank, want %.0f: %.4f times as many", sum, total, sum/total)
			}
		})
	}
}

// Without experts, all that ranks of several hosts move can be counted: how many rows travel
// depends on routing. Each call of a collective sends some bytes more.
func TestTrafficBetweenHosts(t *testing.T) {
	for name, change := range some(map[string]func(*config.Config){
		"BF16":         func(*config.Config) {},
		"MXFP8":        func(c *config.Config) { c.Precision = "mxfp8" },
		"MTP":          func(c *config.Config) { c.Model.MTPLayers, c.Model.Experts = 1, 8 },
		"passes":       func(c *config.Config) { c.MicroBatch = 1 },
		"FSDP":         func(c *config.Config) { c.FSDP = true },
		"FSDP, passes": func(c *config.Config) { c.FSDP, c.MicroBatch = true, 1 },
		"FSDP, MTP":    func(c *config.Config) { c.FSDP, c.Model.MTPLayers, c.Model.Experts, c.Precision = true, 1, 8, "mxfp8" },
	}, "BF16", "FSDP, MTP") {
		places := [][2]int{{2, 1}, {2, 2}, {4, 2}}
		if !allLayouts() {
			places = places[1:2]
		}
		for _, on := range places {
			t.Run(fmt.Sprintf("%s/%dx%d", name, on[0], on[1]), func(t *testing.T) {
				const steps = 1
				cfg, moved, sent := movedBySteps(t, on[0], on[1], steps, func(c *config.Config) {
					c.Model.DenseLayers, c.Model.DenseInter, c.Model.Vocab, c.Batch = c.Model.Layers, 512, 4096, 16
					change(c)
				})
				all, err := estimate.LayoutTraffic(cfg, mesh.Default(on[0]*on[1]), on[0])
				if err != nil {
					t.Fatal(err)
				}
				want, network := map[collective.Kind]float64{}, 0.0
				for _, m := range all {
					want[m.Kind] += steps * m.Memory
					network += steps * m.Network
				}
				for _, kind := range []collective.Kind{collective.KindBuffers, collective.KindReduceScatter, collective.KindAllGatherV} {
					if math.Abs(moved[kind]-want[kind]) > 1e-3*want[kind] {
						t.Errorf("%v: %.0f bytes per rank, want %.0f", kind, moved[kind], want[kind])
					}
				}
				if cfg.Model.MoELayers() == 0 && math.Abs(sent/network-1) > 0.01 {
					t.Errorf("%.0f bytes sent to other hosts, want %.0f: %.4f times as many", sent, network, sent/network)
				}
			})
		}
	}
}

// Ranks that share sequences on one host add nothing to what hosts exchange. On several, they send
// parts of sequences and sums.
func TestTrafficOfSharedSequencesBetweenHosts(t *testing.T) {
	for name, c := range some(map[string]struct {
		hosts, each int
		change      func(*config.Config)
	}{
		"cp":                  {2, 2, func(c *config.Config) { c.CP = 2 }},
		"tp, MXFP8":           {2, 2, func(c *config.Config) { c.TP, c.Precision = 2, "mxfp8" }},
		"cp, tp, FSDP":        {2, 4, func(c *config.Config) { c.CP, c.TP, c.FSDP, c.Model.MTPLayers, c.Model.Experts = 2, 2, true, 1, 8 }},
		"four hosts":          {4, 2, func(c *config.Config) { c.CP = 2 }},
		"stages":              {4, 2, func(c *config.Config) { c.PP, c.TP = 2, 2 }},
		"cp over hosts":       {2, 2, func(c *config.Config) { c.CP = 4 }},
		"one rank per host":   {2, 1, func(c *config.Config) { c.CP, c.Precision, c.Model.BalanceAlpha = 2, "mxfp8", 0.1 }},
		"cp over hosts, FSDP": {4, 2, func(c *config.Config) { c.CP, c.TP, c.FSDP, c.Recompute = 2, 2, true, "selective" }},
		"tp over hosts, FSDP": {2, 2, func(c *config.Config) { c.TP, c.FSDP, c.Precision = 4, true, "mxfp8" }},
		"cp over four hosts":  {4, 1, func(c *config.Config) { c.CP, c.Model.MTPLayers = 4, 1 }},
		"stages over hosts":   {4, 1, func(c *config.Config) { c.PP, c.CP = 2, 2 }},
		"experts over hosts":  {2, 2, func(c *config.Config) { c.CP, c.EP, c.Model.DenseLayers, c.Model.ForceBalance = 4, 2, 1, true }},
		"experts":             {2, 2, func(c *config.Config) { c.CP, c.EP, c.Model.DenseLayers, c.Model.ForceBalance = 2, 1, 1, true }},
	}, "cp, tp, FSDP", "cp over hosts, FSDP", "experts over hosts") {
		t.Run(name, func(t *testing.T) {
			const steps = 1
			cfg, moved, sent := movedBySteps(t, c.hosts, c.each, steps, func(cfg *config.Config) {
				cfg.Batch, cfg.Seq, cfg.Model.Dim, cfg.Model.DenseInter, cfg.Model.Heads, cfg.Model.Vocab = 8, 256, 128, 512, 4, 4096
				cfg.Model.DenseLayers = cfg.Model.Layers
				c.change(cfg)
				cfg.MicroBatch = 0
			})
			all, err := estimate.LayoutTraffic(cfg, cfg.LayoutOrDefault(c.hosts*c.each), c.hosts)
			if err != nil {
				t.Fatal(err)
			}
			want, network := map[collective.Kind]float64{}, 0.0
			for _, m := range all {
				want[m.Kind] += steps * m.Memory
				network += steps * m.Network
			}
			for _, kind := range []collective.Kind{collective.KindBuffers, collective.KindReduceScatter, collective.KindAllGatherV} {
				if math.Abs(moved[kind]-want[kind]) > 1e-3*want[kind] {
					t.Errorf("%v: %.0f bytes per rank, want %.0f", kind, moved[kind], want[kind])
				}
			}
			checkSent(t, sent, network)
		})
	}
}

// checkSent compares the bytes that a rank sends to other hosts with those of the count.
func checkSent(t *testing.T, sent, counted float64) {
	t.Helper()
	if t.Logf("%.4f times as many bytes between hosts", sent/counted); counted == 0 || math.Abs(sent/counted-1) > 0.01 {
		t.Errorf("%.0f bytes sent to other hosts per rank, want %.0f", sent, counted)
	}
}

// What stages send to other hosts can be counted: messages and short vectors, and what the ranks of
// a stage on several hosts sum.
func TestTrafficOfStagesBetweenHosts(t *testing.T) {
	for name, c := range some(map[string]struct {
		hosts, each int
		change      func(*config.Config)
	}{
		"a rank per host":     {2, 1, func(c *config.Config) { c.PP = 2 }},
		"replicas":            {2, 2, func(c *config.Config) { c.PP, c.EP = 2, 1 }},
		"two stages per host": {2, 2, func(c *config.Config) { c.PP, c.PPSchedule, c.Precision = 4, "1F1B", "mxfp8" }},
		"two per rank":        {2, 1, func(c *config.Config) { c.PP, c.PPSchedule, c.Model.Layers = 2, "ZBVZeroBubble", 4 }},
		"four hosts":          {4, 1, func(c *config.Config) { c.PP, c.Model.Layers = 4, 4 }},
		"stages on hosts":     {4, 1, func(c *config.Config) { c.PP, c.Model.DenseLayers = 2, c.Model.Layers }},
	}, "replicas", "MTP apart", "two per rank") {
		t.Run(name, func(t *testing.T) {
			const steps = 1
			cfg, moved, sent := movedBySteps(t, c.hosts, c.each, steps, func(cfg *config.Config) {
				cfg.PPMicrobatches, cfg.Batch, cfg.Seq, cfg.Model.Dim = 8, 64, 256, 128
				c.change(cfg)
			})
			all, err := estimate.LayoutTraffic(cfg, cfg.LayoutOrDefault(c.hosts*c.each), c.hosts)
			if err != nil {
				t.Fatal(err)
			}
			messages, network := 0.0, 0.0
			for _, m := range all {
				if network += steps * m.Network; m.Kind == collective.KindMessage {
					messages += steps * m.Memory
				}
			}
			if moved[collective.KindMessage] != messages {
				t.Errorf("messages of %.0f bytes per rank, want %.0f", moved[collective.KindMessage], messages)
			}
			checkSent(t, sent, network)
		})
	}
}

// Replicas of experts on several hosts send the rows that others multiply, and the weights that
// they update. Experts have equally many rows here, as in the count.
func TestTrafficOfReplicasBetweenHosts(t *testing.T) {
	for name, c := range some(map[string]struct {
		hosts, each int
		change      func(*config.Config)
	}{
		"a replica per host":   {2, 1, func(c *config.Config) { c.EP = 1 }},
		"MXFP8, passes":        {2, 2, func(c *config.Config) { c.EP, c.Precision, c.MicroBatch = 2, "mxfp8", 2 }},
		"two per host":         {2, 2, func(c *config.Config) { c.EP = 1 }},
		"four hosts":           {4, 1, func(c *config.Config) { c.EP = 1 }},
		"groups of two ranks":  {4, 2, func(c *config.Config) { c.EP = 2 }},
		"groups of two hosts":  {4, 2, func(c *config.Config) { c.EP = 4 }},
		"stages with replicas": {4, 1, func(c *config.Config) { c.PP, c.EP, c.PPMicrobatches = 2, 1, 4 }},
	}, "MXFP8, passes", "groups of two hosts", "stages with replicas") {
		t.Run(name, func(t *testing.T) {
			const steps = 1
			cfg, _, sent := movedBySteps(t, c.hosts, c.each, steps, func(cfg *config.Config) {
				cfg.Batch, cfg.Seq, cfg.Model.Dim, cfg.Model.ExpertInter, cfg.Model.ForceBalance = 32, 128, 128, 128, true
				c.change(cfg)
			})
			all, err := estimate.LayoutTraffic(cfg, cfg.LayoutOrDefault(c.hosts*c.each), c.hosts)
			if err != nil {
				t.Fatal(err)
			}
			network := 0.0
			for _, m := range all {
				network += steps * m.Network
			}
			checkSent(t, sent, network)
		})
	}
}

// The ranks of a host hold each matrix once, and each its own norms. That is true of experts in
// every layout. The optimizer's state is never held twice.
func TestLayoutMemory(t *testing.T) {
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Batch, cfg.Precision = 8, "bf16"
	n := cfg.Model.Count()
	single := int64(0)
	for _, m := range cfg.Model.Modules(cfg.Seq) {
		if m.Class == moe.Single {
			single += m.Params
		}
	}
	matrices := n.Replicated - single
	near := func(what string, got, want int64) {
		t.Helper()
		if got < want-4 || float64(got) > 1.06*float64(want) { // with padding
			t.Errorf("%s: %d bytes, want %d", what, got, want)
		}
	}
	for _, l := range mesh.Sharing(4, 1, 1, 1, cfg.Model.Experts) {
		one, two, apart := estimate.LayoutMemory(cfg, l, 1), estimate.LayoutMemory(cfg, l, 2), estimate.LayoutMemory(cfg, l, 4)
		near(l.Name()+" weights", 4*one.Weights, 2*(matrices+n.Routed)+4*4*single)
		near(l.Name()+" gradients", 4*one.Gradients, 4*(matrices+n.Routed)+4*4*single)
		sharers := int64(max(2/l.EP, 1)) // of an expert on a host
		near(l.Name()+" weights on 2 hosts", two.Weights, 2*(matrices/2+n.Routed/int64(l.EP)/sharers)+4*single)
		near(l.Name()+" gradients on 2 hosts", two.Gradients, 4*(matrices/2+n.Routed/int64(l.EP)/sharers+single))
		near(l.Name()+" weights on 4 hosts", apart.Weights, 2*(matrices+n.Routed/int64(l.EP))+4*single)
		near(l.Name()+" gradients on 4 hosts", apart.Gradients, 4*(matrices+n.Routed/int64(l.EP)+single))
		near(l.Name()+" state", 4*one.Optimizer, 12*n.Total)
		near(l.Name()+" state on 4 hosts", 4*apart.Optimizer, 12*n.Total)
		// on one host, a weight's gradient is a sum over ranks; on several, rows of replicas arrive
		if l.Replicas() == 1 && one.Activations < apart.Activations || one.Snapshot != one.Optimizer && one.Snapshot != 0 {
			t.Errorf("%v: %+v on one host, %+v on four", l, one, apart)
		}
	}
	cfg.Precision = "mxfp8"
	alone := estimate.LayoutMemory(cfg, mesh.Default(1), 1).Weights
	if least := n.Routed * quantizedBytes / 32; alone < least {
		t.Fatalf("weights take %d bytes, want more than %d of quantized experts alone", alone, least)
	}
	for _, l := range mesh.Sharing(4, 1, 1, 1, cfg.Model.Experts) {
		near(l.Name()+" quantized weights", 4*estimate.LayoutMemory(cfg, l, 1).Weights, alone+3*4*single)
	}
}

// quantizedBytes is the size of 32 weights in MXFP8 in both directions, with a scale each.
const quantizedBytes = 2 * (32 + 1)

func TestLayoutTrafficErrors(t *testing.T) {
	for name, c := range map[string]struct {
		world, ep, hosts int
		want             string
	}{
		"hosts that do not divide ranks": {4, 4, 3, "3 hosts do not divide 4 ranks"},
		"no hosts":                       {4, 4, 0, "0 hosts do not divide 4 ranks"},
		"groups that cross hosts":        {12, 4, 2, "dp_replicate 1, dp_shard 12, ep 4: the 6 ranks of a host and ep must divide one another"},
	} {
		l, err := mesh.Resolve(c.world, mesh.Degrees{DPReplicate: 1, DPShard: -1, EP: c.ep}, mesh.Model{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := estimate.LayoutTraffic(tiny(t, func(c *config.Config) { c.Batch = 12 }), l, c.hosts); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
