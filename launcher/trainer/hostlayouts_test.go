package trainer

// Layouts on several hosts give the bits of one host.

import (
	"slices"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// hostsRun is a run of two steps of 4 passes, with layers for up to 4 stages. Ranks may share its
// sequences.
func hostsRun(t *testing.T, precision string) config.Config {
	cfg := pipelineRun(t, precision)
	cfg.Model.Layers, cfg.SampleTokens, cfg.EvalSequences, cfg.Seq = 3, 5, 8, 64
	return cfg
}

// stagesOnHosts are pipelines whose stages are on different hosts, each on one host or on several.
var stagesOnHosts = []placed{
	{hosts: []int{1, 1}, schedule: "1F1B", layout: mesh.Layout{World: 2, PP: 2, DPReplicate: 1, DPShard: 1, EP: 1}},
	{hosts: []int{2, 2}, schedule: "Interleaved1F1B", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2}},
	{hosts: []int{2, 2}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 1}},
	{hosts: []int{2, 2}, schedule: "InterleavedZeroBubble", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 2, DPShard: 1, EP: 1}},
	{hosts: []int{2, 2}, schedule: "1F1B", layout: mesh.Layout{World: 4, PP: 4, DPReplicate: 1, DPShard: 1, EP: 1}},
	{hosts: []int{2, 2}, schedule: "DualPipeV", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 1, CP: 2, EP: 2}},
	{hosts: []int{2, 4}, schedule: "1F1B", layout: mesh.Layout{World: 6, PP: 3, DPReplicate: 1, DPShard: 2, EP: 1}},
	{hosts: []int{3, 1}, schedule: "Interleaved1F1B", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2}},
	{hosts: []int{4, 4}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 2, DPShard: 2, EP: 2},
		change: func(c *config.Config) { c.PPOverlap = true }},
	{hosts: []int{1, 1, 1, 1}, schedule: "DualPipeV", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2},
		change: func(c *config.Config) { c.PPOverlap = true }},
	{hosts: []int{1, 1, 1, 1}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2},
		change: func(c *config.Config) { c.FSDP = true }},
	{hosts: []int{2, 2, 2, 2}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 8, PP: 2, DPReplicate: 1, DPShard: 4, EP: 4}},
}

// Stages on different hosts, and stages that span hosts, give the bits of one rank in training,
// evaluations and samples.
func TestOneResultForAllPipelinesOnHosts(t *testing.T) {
	sameOnHosts(t, hostsRun, stagesOnHosts)
}

// replicasOnHosts are layouts whose experts have replicas on several hosts: one or several on each,
// in groups that exchange tokens on one host or between hosts.
var replicasOnHosts = []placed{
	{hosts: []int{1, 1}, layout: mesh.Layout{World: 2, PP: 1, DPReplicate: 2, DPShard: 1, EP: 1}},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 2, EP: 2}},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 1}},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 4, DPShard: 1, EP: 1},
		change: func(c *config.Config) { c.MicroBatch = 0 }},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 4, EP: 2},
		change: func(c *config.Config) { c.MicroBatch, c.FSDP = 1, true }},
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 8, EP: 4},
		change: func(c *config.Config) { c.MicroBatch, c.EPExchange = 1, "standard" }},
	{hosts: []int{2, 2}, schedule: "ZBVZeroBubble", layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 2, EP: 1},
		change: func(c *config.Config) { c.Recompute = "full" }},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 2}},
	{hosts: []int{2, 2, 2, 2}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 4, EP: 4},
		change: func(c *config.Config) { c.MicroBatch = 1 }},
	{hosts: []int{1, 1, 1, 1}, schedule: "DualPipeV", layout: mesh.Layout{World: 4, PP: 2, DPReplicate: 2, DPShard: 1, EP: 1},
		change: func(c *config.Config) { c.PPOverlap = true }},
}

// Replicas of experts on several hosts have the gradients of one rank.
func TestOneResultForReplicasOnHosts(t *testing.T) {
	sameOnHosts(t, hostsRun, replicasOnHosts)
	drawn := func() config.Config {
		cfg := hostsRun(t, "mxfp4-e2m1")
		cfg.MXFP4.Stochastic, cfg.Batch, cfg.Steps = true, 32, 1
		return cfg
	}
	sameBits(t, drawn, []placed{replicasOnHosts[1], replicasOnHosts[4]})
	sums := func() config.Config { // travel, in two products of two passes
		cfg := drawn()
		cfg.Model.Experts, cfg.Model.TopK, cfg.Steps, cfg.Seq, cfg.Batch = 4, 3, 1, 32, 16
		return cfg
	}
	sameBits(t, sums, replicasOnHosts[2:3])
}

// wholeSequences are layouts in which ranks do not share sequences: one of each kind, or with
// SPMOE_LAYOUTS=all all of them.
func wholeSequences() (places []placed) {
	if !allLayouts() {
		return []placed{replicasOnHosts[4], stagesOnHosts[9], stagesOnHosts[4], stagesOnHosts[10], replicasOnHosts[5], replicasOnHosts[6]}
	}
	for _, p := range slices.Concat(stagesOnHosts, replicasOnHosts) {
		if p.layout.Sharers() == 1 {
			places = append(places, p)
		}
	}
	return places
}

// v4Run is hostsRun with the layers of DeepSeek-V4.
func v4Run(t *testing.T, precision string) config.Config {
	cfg := hostsRun(t, precision)
	m := &cfg.Model
	m.DenseLayers, m.MTPLayers, m.HashLayers, m.ScoreFunc, m.SwiGLULimit, m.Groups, m.TopKGroups = 0, 0, 1, moe.SqrtSoftplus, 0.5, 1, 1
	m.Attention, m.Window, m.CSARate, m.HCARate, m.CompressTheta = "csa, hca, sliding", 9, 2, 5, 400
	m.QRank, m.KVRank, m.ValueDim, m.OutputGroups, m.OutputRank = 32, 0, m.KeyDim(), 2, 32
	m.IndexHeads, m.IndexDim, m.IndexTopK = 3, 32, 4
	m.ResidualStreams, m.SinkhornIterations, m.StreamEps = 2, 5, 1e-6
	return cfg
}

// A model like DeepSeek-V4 has the bits of one rank in them.
func TestOneResultForV4(t *testing.T) {
	places := wholeSequences()
	sameBits(t, func() config.Config { return v4Run(t, "bf16") }, places[2:])
	sameBits(t, func() config.Config { return v4Run(t, "mxfp8") }, places[:2])
}

// chosenKeysRun is hostsRun with indexers. The second one serves two layers.
func chosenKeysRun(t *testing.T, precision string) config.Config {
	cfg := hostsRun(t, precision)
	m := &cfg.Model
	m.QRank, m.IndexHeads, m.IndexDim, m.IndexTopK, m.IndexRope, m.IndexerTypes, m.IndexWeight = 16, 3, 16, 20, "half", "FFS", 0.5
	return cfg
}

// Indexers, and attention to what they choose, have the bits of one rank in layouts in which ranks
// do not share sequences. So has the stage in which nothing else trains.
func TestOneResultForChosenKeys(t *testing.T) {
	places := wholeSequences()
	sameBits(t, func() config.Config { return chosenKeysRun(t, "bf16") }, places[:4])
	warmup := func() config.Config {
		cfg := chosenKeysRun(t, "mxfp8")
		cfg.Model.IndexStage = "warmup"
		return cfg
	}
	sameBits(t, warmup, places[:2])
}

// dividedExperts are layouts with more replicas than experts on a rank, which divide the gradients
// of each, on one host and on several.
var dividedExperts = []placed{
	{hosts: []int{4, 4}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 4, EP: 4}},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 2}},
	{hosts: []int{2, 2}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 4, DPShard: 1, EP: 1}},
	{layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 8, EP: 2}},
	{hosts: []int{1, 1, 1, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 1}, change: func(c *config.Config) { c.MicroBatch = 2 }},
	{layout: mesh.Layout{World: 16, PP: 1, DPReplicate: 1, DPShard: 16, EP: 2}, change: func(c *config.Config) { c.MicroBatch = 1 }},
}

func TestOneResultForDividedExperts(t *testing.T) {
	run := func(t *testing.T, precision string) config.Config {
		cfg := hostsRun(t, precision)
		cfg.Model.Experts, cfg.Model.ExpertInter, cfg.Model.TopK, cfg.Batch = 4, 256, 2, 16
		return cfg
	}
	sameOnHosts(t, run, dividedExperts)
}

// unequalHosts are layouts whose hosts have unequal numbers of ranks, with and without replicas.
var unequalHosts = []placed{
	{hosts: []int{3, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 4}},
	{hosts: []int{3, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 1, DPShard: 4, EP: 2}},
	{hosts: []int{1, 2, 1}, layout: mesh.Layout{World: 4, PP: 1, DPReplicate: 4, DPShard: 1, EP: 1}},
	{hosts: []int{3, 5}, layout: mesh.Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 8, EP: 4},
		change: func(c *config.Config) { c.MicroBatch = 1 }},
}

func TestOneResultOnUnequalHosts(t *testing.T) {
	sameOnHosts(t, hostsRun, unequalHosts)
}

// sameOnHosts compares layouts on hosts with one rank: in BF16, in one step of several passes, and
// every fifth in MXFP8, in two. With SPMOE_LAYOUTS=all it does both in all, in two steps.
func sameOnHosts(t *testing.T, run func(*testing.T, string) config.Config, all []placed) {
	for _, precision := range []string{"bf16", "mxfp8"} {
		t.Run(precision, func(t *testing.T) {
			var places []placed
			for i, p := range all {
				if (precision == "mxfp8") == (i%5 == 0) || allLayouts() {
					places = append(places, p)
				}
			}
			sameBits(t, func() config.Config {
				cfg := run(t, precision)
				if precision == "bf16" && !allLayouts() {
					cfg.Steps = 1
				}
				return cfg
			}, places)
		})
	}
}
