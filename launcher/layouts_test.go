package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
	"spmoe/launcher/cli"
	"spmoe/launcher/inspecting"
	"spmoe/launcher/trainer/estimate"
)

// listed returns what inspect --layouts prints as JSON.
func listed(t *testing.T, args ...string) (all []inspecting.LayoutCosts) {
	t.Helper()
	got := launch(append([]string{"inspect", "--layouts", "--json"}, args...)...)
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

// Each legal layout has a line. The first is the default, whose memory is that of inspect. The sums
// are those of their parts.
func TestLayoutsJSON(t *testing.T) {
	for _, flags := range []string{"debug -np 8", "small -np 4 --precision mxfp8 --hosts 2", "-np 1", "-np 2 --set model.dense_layers=4", "-np 24 --set model.dense_layers=4 --hosts 2"} {
		all := listed(t, strings.Fields(flags+" --pp 1")...)
		inspect := strings.Replace(flags, " --hosts 2", "", 1)
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
			if c.Inner*c.EP != c.DPShard || c.DPReplicate*c.DPShard != c.World || c.Copies*c.EP != c.World {
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
		for _, l := range mesh.Sharing(want.Ranks, 1, 1, 1, experts) {
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

func TestLayoutsText(t *testing.T) {
	for args, want := range map[string][]string{
		"-np 4": {"debug, bf16, on 4 ranks of 1 host; steps of 16 sequences of 128 tokens\n", "\n* dp1x4-ep4 ", "\n  dp2x2-ep1 ", "\n  dp4x1-ep1 ", "\n  pp2-dp1x2-ep2 ",
			"pp4-dp1x1-ep1: pp 4, dp_replicate 1, dp_shard 1, ep 1; *: the default"},
		"-np 12 --pp 1":           {"NOTE: the default layout, dp_replicate 1, dp_shard 12, ep 12, is not legal: ep 12 does not divide 16 experts", "\n  dp1x12-ep4 "},
		"-np 12 --pp 1 --hosts 2": {"NOTE: not listed: dp_replicate 1, dp_shard 12, ep 4: the 6 ranks of a host and ep must divide one another\n"},
	} {
		got := launch(append([]string{"inspect", "--layouts"}, strings.Fields(args)...)...)
		for _, w := range want {
			if out := got.out + got.errOut; got.code != cli.ExitOK || !strings.Contains(out, w) {
				t.Errorf("%s: no %q in\n%s", args, w, out)
			}
		}
	}
}

// A pipeline is described with its bubbles, and --schedule lists what its ranks do.
func TestInspectPipeline(t *testing.T) {
	for _, name := range pipeline.Names() {
		args := strings.Fields("inspect small -np 4 --pp 4 --batch 16 --set pp_microbatches=8 --set pp_schedule=" + name)
		short, long := succeed(t, args...), succeed(t, append(args, "--schedule")...)
		if !strings.Contains(short, "\npipeline: "+name+", 4 ranks, ") || !strings.Contains(short, "8 micro-batches; bubble ") || !strings.Contains(short, "in flight") {
			t.Errorf("%s: %s", name, short)
		}
		of := func(out string) string { return out[strings.Index(out, "\npipeline: "):] }
		if lists, ok := strings.CutPrefix(of(long), of(short)); !ok || strings.Count(lists, "F7") < 4 || !strings.Contains(lists, "\n  3 ") {
			t.Errorf("%s: %s", name, lists)
		}
	}
	// 1F1B of p ranks and m micro-batches is idle for (p-1) of m+p-1 parts.
	if out := succeed(t, strings.Fields("inspect small -np 4 --pp 4 --batch 16 --set pp_microbatches=8")...); !strings.Contains(out, "bubble 27.3% of") {
		t.Errorf("%s", out)
	}
}
