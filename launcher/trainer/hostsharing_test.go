package trainer

// Ranks that share sequences, in stages that span hosts, give the bits of one host.

import (
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
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
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, TP: 4, EP: 8},
		change: func(c *config.Config) { c.FSDP, c.Recompute = true, "full" }},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, TP: 2, EP: 1},
		change: func(c *config.Config) { c.EPExchange = "standard" }},
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
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 1, CP: 4, EP: 2}},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, TP: 2, EP: 8},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 4, EP: 1},
		change: func(c *config.Config) { c.FSDP, c.Recompute = true, "selective" }},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, TP: 4, EP: 4}},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, TP: 4, EP: 4},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 2},
		change: func(c *config.Config) { c.FSDP, c.Recompute = true, "full" }},
	{hosts: []int{2, 2, 2, 2}, schedule: "1F1B", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 1, TP: 4, EP: 4},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{2, 2, 2, 2}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 1, CP: 4, EP: 4},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{2, 2, 2, 2}, schedule: "DualPipeV", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 1, CP: 2, TP: 2, EP: 2},
		change: func(c *config.Config) { c.PPOverlap = true }},
}

// Sequences that are on several hosts give the bits of one rank.
func TestOneResultForSequencesOnSeveralHosts(t *testing.T) {
	sameOnHosts(t, sharedRun, splitOnHosts)
}
