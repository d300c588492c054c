package trainer

// Ranks that share sequences, in stages that span hosts, give the bits of one host.

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// sharedRun is hostsRun for up to 4 ranks that share a sequence and divide the rows of a dense
// weight's gradient.
func sharedRun(t *testing.T, precision string) config.Config {
	cfg := hostsRun(t, precision)
	cfg.Seq, cfg.Batch, cfg.MicroBatch, cfg.EvalSequences = 128, 8, 4, 4
	cfg.Model.Heads, cfg.Model.DenseInter = 4, 256
	return cfg
}

// sharingOnHosts are layouts whose hosts have whole groups of ranks that share sequences.
var sharingOnHosts = []placed{
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, EP: 4}},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 1, TP: 2, EP: 1}},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, TP: 2, EP: 8}},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 2, CP: 2, EP: 2}},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 4, TP: 2, EP: 4}},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, CP: 4, EP: 4},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, TP: 4, EP: 8},
		change: func(c *config.Config) { c.FSDP, c.Recompute = true, "full" }},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, TP: 2, EP: 1},
		change: func(c *config.Config) { c.EPExchange = "standard" }},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 4, CP: 2, EP: 8}},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 2, TP: 2, EP: 2},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{2, 2, 2, 2}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 2, CP: 2, EP: 4}},
	{hosts: []int{2, 2, 2, 2}, schedule: "1F1B", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 2, TP: 2, EP: 2},
		change: func(c *config.Config) { c.FSDP = true }},
}

// Groups that share sequences, each on one host of several, give the bits of one rank.
func TestOneResultForSharedSequencesOnHosts(t *testing.T) {
	sameOnHosts(t, sharedRun, sharingOnHosts)
}

// splitOnHosts are layouts in which hosts cut the groups of ranks that share sequences.
var splitOnHosts = []placed{
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 4}},
	{hosts: []int{1, 1}, layout: mesh.Layout{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, EP: 2}},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 1}},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, EP: 4}},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 2}},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 1, CP: 4, EP: 2}},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, TP: 2, EP: 8},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 2},
		change: func(c *config.Config) { c.FSDP, c.Recompute = true, "full" }},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 1},
		change: func(c *config.Config) { c.FSDP, c.Recompute = true, "selective" }},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, TP: 4, EP: 4}},
	{hosts: []int{1, 1}, layout: mesh.Layout{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, TP: 2, EP: 1},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, TP: 4, EP: 4},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 2},
		change: func(c *config.Config) { c.FSDP, c.Recompute = true, "full" }},
	{hosts: []int{2, 2, 2, 2}, schedule: "1F1B", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 1, TP: 4, EP: 4},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{1, 1, 1, 1}, schedule: "1F1B", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 1, CP: 2, EP: 2}},
	{hosts: []int{2, 2, 2, 2}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 1, CP: 4, EP: 4},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{2, 2, 2, 2}, schedule: "DualPipeV", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 2},
		change: func(c *config.Config) { c.PPOverlap = true }},
}

// Sequences that are on several hosts give the bits of one rank.
func TestOneResultForSequencesOnSeveralHosts(t *testing.T) {
	sameOnHosts(t, sharedRun, splitOnHosts)
}

// Options of a run keep their meaning if sequences are on several hosts.
func TestSequencesOnSeveralHostsWithOptions(t *testing.T) {
	refused := 0
	for name, change := range contextOptions() {
		cut := contextRun(t, "bf16")
		change(&cut)
		if cut.CP = 2; cut.OnHosts(2, []int{0, 1}) != nil { // sums cannot go on
			t.Logf("%s is refused", name)
			refused++
			continue
		}
		t.Run(name, func(t *testing.T) {
			run := func(p placed) outcome {
				cfg := contextRun(t, "bf16")
				cfg.SetLayout(p.layout)
				change(&cfg)
				if cfg.Model.DenseInter = max(cfg.Model.DenseInter, 256); p.layout.Sharers() == 1 {
					cfg.MicroBatch = 1 // the passes of ranks that share them
				}
				o := outcomeFrom(t, cfg, p.train(t, cfg, ""))
				if cfg.EPCapacity > 0 {
					o.evals, o.sample = nil, "" // of other numbers of sequences in a pass
				}
				return o
			}
			want := run(placed{hosts: []int{1}, layout: mesh.Default(1)})
			all := []placed{
				{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 2}},
				{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 4}},
				{hosts: []int{1, 1}, layout: mesh.Layout{World: 2, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, EP: 1}},
			}
			if !allLayouts() {
				all = all[:1]
			}
			for _, p := range all {
				run(p).equals(t, p.String(), want)
			}
		})
	}
	if refused != 6 {
		t.Errorf("%d are refused", refused)
	}
}

// With equally many rows per expert, ranks that share sequences on several hosts hold what the
// estimate says.
func TestEstimateMemoryOfSequencesOnHosts(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"cp 4":            func(c *config.Config) { c.CP = 4 },
		"cp 4, MXFP8":     func(c *config.Config) { c.CP, c.Precision = 4, "mxfp8" },
		"cp 2, tp 2":      func(c *config.Config) { c.CP, c.TP, c.Model.MTPLayers = 2, 2, 1 },
		"cp 4, recompute": func(c *config.Config) { c.CP, c.Recompute = 4, "full" },
		"cp 2":            func(c *config.Config) { c.CP = 2 },
		"tp 4":            func(c *config.Config) { c.TP = 4 },
	} {
		for _, on := range [][2]int{{2, 2}, {4, 1}} {
			t.Run(fmt.Sprintf("%s/%dx%d", name, on[0], on[1]), func(t *testing.T) {
				cfg := measurable(t)
				cfg.Batch, cfg.Seq, cfg.MicroBatch, cfg.Model.ForceBalance = 4, 256, 1, true
				change(&cfg)
				each, _ := heldOnHosts(t, cfg, on[0], on[1])
				estimated := estimate.LayoutMemory(cfg, cfg.LayoutOrDefault(on[0]*on[1]), on[0])
				for rank, m := range each {
					closeTo(estimated, t, fmt.Sprintf("rank %d", rank), m, 1.01)
				}
			})
		}
	}
}

// The copy of dense weights that has changed on one of two hosts with a rank each is published
// again.
func TestSharersOnHostsChange(t *testing.T) {
	undisturbed := guardedConfig(t, func(c *config.Config) { c.CP, c.Seq = 2, 64 })
	onHosts(t, undisturbed, 2, 1, nil, run)
	cfg := undisturbed
	cfg.Out = filepath.Join(t.TempDir(), "run")
	var attempts tries
	said := onHosts(t, cfg, 2, 1, func(r *rank, computed bool) {
		if r.Progress.Step+1 != 5 || computed || attempts.next(r) != 1 {
			return
		}
		if r.comm.Rank() == 1 {
			r.Model.Groups[1].Work.Bytes()[0] ^= 1
		}
		if err := r.comm.Barrier(); err != nil {
			t.Error(err)
		}
	}, run)
	if alarms := said.texts(); len(alarms) != 1 || !strings.Contains(alarms[0], "dense weights of rank 1 changed in memory: they are published again") {
		t.Errorf("alarms %q", alarms)
	}
	sameState(t, "hosts that share sequences", cfg, undisturbed, cfg.Steps)
}
