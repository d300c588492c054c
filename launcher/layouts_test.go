package main

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/cli"
	"spmoe/launcher/inspecting"
	"spmoe/launcher/trainer/estimate"
)

// listed returns what layouts prints as JSON.
func listed(t *testing.T, args ...string) (all []inspecting.LayoutCosts) {
	t.Helper()
	got := launch(append([]string{"layouts", "--json"}, args...)...)
	if got.code != cli.ExitOK || got.errOut != "" && !strings.HasPrefix(got.errOut, "NOTE: ") {
		t.Fatalf("%q: exit code %d: %s", args, got.code, got.errOut)
	}
	for line := range strings.Lines(got.out) {
		var c inspecting.LayoutCosts
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// Pipelines are listed like other layouts, with the memory of each place. Fewer stages per rank
// need less.
func TestLayoutsOfPipelines(t *testing.T) {
	all := listed(t, strings.Fields("-np 4 --flavor small --pp 1,2,4 --set pp_microbatches=4")...)
	if len(all) != 6+3+1 {
		t.Fatalf("%d layouts", len(all))
	}
	for _, c := range all {
		var sum, most int64
		for _, m := range c.Places {
			sum, most = sum+int64(c.Batch())*m.All, max(most, m.All)
		}
		messages := c.Sum(called("messages")).Memory
		if len(c.Places) != c.PP || c.AllMemory != sum || c.Memory.All != most || (messages > 0) != (c.PP > 1) {
			t.Errorf("%s: %d places, %d bytes of %d, %d of %d, messages of %g bytes", c.ID, len(c.Places), c.Memory.All, most, c.AllMemory, sum, messages)
		}
	}
	if one, two := all[0].Memory, all[6].Memory; two.Optimizer < one.Optimizer || two.Optimizer > 2*one.Optimizer {
		t.Errorf("%+v without a pipeline, %+v in one of two ranks", one, two)
	}
	sizes := inspected(t, strings.Fields("small -np 4 --pp 2 --set pp_microbatches=4")...)
	if sizes.Memory.Memory != all[6].Memory.Memory {
		t.Errorf("inspect says %+v, layouts %+v", sizes.Memory, all[6].Memory)
	}
}

// Each legal layout has a line. The first is the default, whose memory is that of inspect. The sums
// are those of their parts.
func TestLayoutsJSON(t *testing.T) {
	for _, flags := range []string{"-np 8 --flavor debug", "-np 4 --flavor small --precision mxfp8 --hosts 2", "-np 1", "-np 2 --set model.dense_layers=4", "-np 24 --set model.dense_layers=4 --hosts 2"} {
		all := listed(t, strings.Fields(flags)...)
		inspect := strings.Replace(strings.Replace(flags, "--flavor ", "", 1), " --hosts 2", "", 1)
		want := inspected(t, strings.Fields(inspect)...)
		experts := resolvedExperts(t, want)
		var ids []string
		for _, c := range all {
			ids = append(ids, c.ID)
			var sum estimate.Moved
			for _, m := range c.Movements {
				sum = sum.Plus(m.Moved)
			}
			if sum != c.Moved || c.Memory.All != c.Memory.Total() || c.AllMemory != int64(c.World)*c.Memory.All {
				t.Errorf("%s %s: sums are %+v, %d and %d", flags, c.ID, c.Moved, c.Memory.All, c.AllMemory)
			}
			if c.Inner*c.EP != c.DPShard || c.DPReplicate*c.DPShard != c.World || c.Copies*c.EP != c.World || c.ExpertState*float64(c.Copies) != 1 {
				t.Errorf("%s: %+v", flags, c)
			}
			if c.Default != (c.Layout == mesh.Default(c.World)) || c.Experts != experts/c.EP {
				t.Errorf("%s %s: %d experts per rank, default: %v", flags, c.ID, c.Experts, c.Default)
			}
			if between := c.Moved.Network > 0; between != (c.Hosts > 1) {
				t.Errorf("%s %s: %g bytes between %d hosts", flags, c.ID, c.Moved.Network, c.Hosts)
			}
		}
		var names []string
		for _, l := range mesh.All(want.Ranks, experts) {
			names = append(names, l.Name())
		}
		if !slices.Equal(ids, names) {
			t.Errorf("%s: %q, want %q", flags, ids, names)
		}
		if all[0].Hosts == 1 && all[0].Memory.Memory != want.Memory.Memory {
			t.Errorf("%s: memory %+v, inspect says %+v", flags, all[0].Memory, want.Memory)
		}
	}
}

// resolvedExperts returns the experts of a model; 0 if it is dense.
func resolvedExperts(t *testing.T, s inspecting.Sizes) int {
	t.Helper()
	if s.Parameters.Routed == 0 {
		return 0
	}
	var hf struct {
		Experts int `json:"n_routed_experts"`
	}
	if err := json.Unmarshal(s.Model, &hf); err != nil || hf.Experts == 0 {
		t.Fatalf("%v: %s", err, s.Model)
	}
	return hf.Experts
}

// Fewer ranks that share the experts exchange fewer tokens with peers, and sum gradients of experts
// instead.
func TestLayoutsTrade(t *testing.T) {
	all := listed(t, "-np", "4")
	tokens := called("dispatch", "combine")
	for i, c := range all[:3] { // ep 4, 2, 1
		exchanged, summed := c.Sum(tokens), c.Sum(called("buffers over replicas"))
		if want := float64(c.EP-1) / float64(c.EP); math.Abs(exchanged.Peers-want*exchanged.Memory) > 1 ||
			exchanged.Memory != all[0].Sum(tokens).Memory {
			t.Errorf("%s: %g of %g bytes from peers, want the share %g", c.ID, exchanged.Peers, exchanged.Memory, want)
		}
		if (summed.Memory > 0) != (i > 0) {
			t.Errorf("%s: %g bytes for sums over replicas", c.ID, summed.Memory)
		}
	}
}

func TestLayoutsText(t *testing.T) {
	for args, want := range map[string][]string{
		"-np 4 layouts": {"debug, bf16, on 4 ranks of 1 host; steps of 16 sequences of 128 tokens\n", "\n* dp1x4-ep4 ", "\n  dp2x2-ep1 ", "\n  dp4x1-ep1 ",
			"dp4x1-ep1: dp_replicate 4, dp_shard 1, ep 1; *: the default", "a rank holds 1/4"},
		"-np 4 layouts --hosts 2": {" network\n", "to other hosts per step"},
		"-np 4 layouts --set dp_replicate=2 --ep 1": {"dp_replicate 2, dp_shard 2, ep 1 (dp2x2-ep1): efsdp 2\n", "16 of the 16 of each layer, with 4 replicas; 1/4 of their optimizer state",
			"one copy for all ranks, and 1/4", "expert replicas, which sum gradients: 1 group of 4 ranks, the first with 0 1 2 3", "dp_replicate: 2 groups of 2 ranks, the first with 0 2\n", "\nbuffers over replicas "},
		"-np 4 layouts --ep 4":     {"(dp1x4-ep4, the default): efsdp 1", "without replicas; all of their"},
		"-np 24 layouts --ep 8":    {"3 groups of 8 ranks", "1 group of 24 ranks, the first with 0 1 2 3 4 5 6 7 ..."},
		"-np 12 layouts":           {"NOTE: the default layout, dp_replicate 1, dp_shard 12, ep 12, is not legal: ep 12 does not divide 16 experts", "\n  dp1x12-ep4 "},
		"-np 12 layouts --hosts 2": {"NOTE: not listed: dp_replicate 1, dp_shard 12, ep 4: the 6 ranks of a host and ep must divide one another\n"},
	} {
		out := succeed(t, strings.Fields(args)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", args, w, out)
			}
		}
		if strings.Contains(args, "--ep") && strings.Count(out, "dp_replicate") != 2 {
			t.Errorf("%s describes more than one layout:\n%s", args, out)
		}
	}
}

// A choice that is not legal ends with the rule that it breaks and the nearest legal layout.
func TestLayoutsUsage(t *testing.T) {
	for args, want := range map[string][]string{
		"--ep 3":                                {"ep 3 does not divide dp_shard 8", "the nearest legal layout is dp_replicate 1, dp_shard 8, ep 4"},
		"--set dp_replicate=3":                  {"dp_replicate 3 does not divide 8 ranks", "world = pp · dp_replicate · dp_shard · cp · tp", "dp_replicate 4, dp_shard 2, ep 2"},
		"--set dp_replicate=2 --set dp_shard=3": {"dp_replicate 2 · dp_shard 3 is not 8 ranks", "dp_replicate 2, dp_shard 4, ep 4"},
		"--set dp_shard=-2":                     {"dp_shard is -2", "a degree is 1 or more"},
		"--ep 8 --set model.experts=12":         {"ep 8 does not divide 12 experts", "ep 4"},
		"--ep two":                              {`"two"`, "ep", "whole number"},
		"--tp 3":                                {"tp 3 does not divide 8 ranks, or is no power of two"},
		"--pp 3":                                {"pp 3 does not divide 8 ranks"},
		"--pp 2,4 --ep 2":                       {"pp is 2,4", "--ep"},
		"-np 6 --pp 3 --hosts 2 --batch 6":      {"the 3 ranks of a host and the 2 of a stage must divide one another"},
		"--hosts 3":                             {"hosts is 3", "8 ranks"},
		"--hosts 0":                             {"hosts is 0"},
		"--batch 13":                            {"batch is 13", "8 ranks"},
		"--flavor 17B":                          {`"17B"`, "debug, small"},
		"--set ep_dispatch=int3":                {`"int3"`, "mxfp8"},
		"-np 0":                                 {"-np is 0"},
		"-np 300":                               {"at most 256"},
		"debug":                                 {`"debug"`, "--help lists the flags"},
		"-np 12 --hosts 2 --ep 4":               {"the 6 ranks of a host and ep must divide one another"},
		"--layot":                               {"--layot"},
		"--dp-replicat 2":                       {"did you mean --set dp_replicate=...?"},
	} {
		refuse(t, cli.ExitUsage, append([]string{"layouts"}, strings.Fields("-np 8 "+args)...), want...)
	}
}

// called selects movements whose names begin with one of some words.
func called(words ...string) func(estimate.Movement) bool {
	return func(m estimate.Movement) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(m.Name, w) })
	}
}
