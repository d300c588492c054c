package projection

import (
	"encoding/json"
	"strings"
	"testing"
)

func tokensOf(t *testing.T, r Run) float64 {
	t.Helper()
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	v, err := throughput(r, Central())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A small micro-batch waits for the host: four times the tokens per micro-batch are nearly three
// times as fast, as published. CUDA graphs and a faster host remove the wait.
func TestHostBound(t *testing.T) {
	small, large := publishedRun("qwen30-mbs1"), publishedRun("qwen30-mbs4")
	slow := tokensOf(t, small)
	if gain := tokensOf(t, large) / slow; gain < 2.3 || gain > 3.2 {
		t.Errorf("micro-batch 4 is %.2f times as fast, published 2.77", gain)
	}
	last := slow
	for _, graphs := range Graphs()[1:] {
		small.Graphs = graphs
		v := tokensOf(t, small)
		if v <= last {
			t.Errorf("with graphs %s %.0f tokens/s, with fewer %.0f", graphs, v, last)
		}
		last = v
	}
	h, err := HardwareByName(small.GPU)
	if err != nil {
		t.Fatal(err)
	}
	small.Graphs, h.HostMicros.Value = "none", h.HostMicros.Value/2
	small.Hardware = &h
	if v := tokensOf(t, small); v < 1.4*slow {
		t.Errorf("a host twice as fast gives %.0f tokens/s, before %.0f", v, slow)
	}
}

// Switches and formats move the throughput the way they must.
func TestSwitches(t *testing.T) {
	base := publishedRun("gb200-26.04")
	base.Recompute = "none"
	for _, x := range []struct {
		what   string
		change func(*Run)
		faster bool
	}{
		{"deterministic sums", func(r *Run) { r.Deterministic = true }, false},
		{"NVFP4", func(r *Run) { r.Precision = "nvfp4" }, true},
		{"natural routing", func(r *Run) { r.Routing, r.Imbalance = Natural, 1.5 }, false},
		{"recomputed norms", func(r *Run) { r.Recompute = "layernorm" }, false},
		{"recomputed activations", func(r *Run) { r.Recompute = "moe_act" }, false},
		{"recomputed expansion", func(r *Run) { r.Recompute = "mla_up_proj" }, false},
		{"recomputed dense layers", func(r *Run) { r.Recompute = "mlp" }, false},
		{"recomputed attention", func(r *Run) { r.Recompute = "core_attn" }, false},
		{"a deduplicating exchange without overlap", func(r *Run) { off := false; r.Dedup = &off }, false},
	} {
		changed := base
		x.change(&changed)
		if a, b := tokensOf(t, base), tokensOf(t, changed); b > a != x.faster || a == b {
			t.Errorf("%s: %.0f tokens/s, before %.0f", x.what, b, a)
		}
	}
	list, all := base, base
	list.Recompute, all.Recompute = "mla_up_proj+moe_act+layernorm+mlp+core_attn", "full"
	if a, b := tokensOf(t, list), tokensOf(t, all); a <= b {
		t.Errorf("all modules recomputed give %.0f tokens/s, everything %.0f", a, b)
	}
	for _, refused := range []Run{{Routing: Natural}, {Routing: Uniform, Imbalance: 2}, {Routing: Natural, Imbalance: 0.5}} {
		r := base
		r.Routing, r.Imbalance = refused.Routing, refused.Imbalance
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "imbalance is") {
			t.Errorf("%+v: %v", refused, err)
		}
	}
}

// A NIC whose speed is assumed makes what it carries assumed, and has a prior.
func TestAssumedNIC(t *testing.T) {
	target := Target()
	for _, x := range []struct {
		change func(*Run)
		want   Kind
	}{{func(*Run) {}, Assumed}, {func(r *Run) { r.GPU = "H100" }, Published}} {
		r := target
		x.change(&r)
		e, err := newEstimator(r, Central())
		if err != nil {
			t.Fatal(err)
		}
		if got := e.term(AllToAll, 1).Kind; got != x.want {
			t.Errorf("on %s the exchange is %s, want %s", r.GPU, got, x.want)
		}
	}
	set := Central()
	set[nicSpeed] = 2
	fast, err := throughput(target, set)
	if err != nil {
		t.Fatal(err)
	}
	if before := tokensOf(t, target); fast < 1.2*before {
		t.Errorf("with 800 Gbit/s %.0f tokens/s, with 400 %.0f", fast, before)
	}
	target.NIC = 50
	if fixed, err := throughput(target, set); err != nil || fixed > tokensOf(t, Target())+1e-6 {
		t.Errorf("a given NIC has a prior: %.0f tokens/s (%v)", fixed, err)
	}
}

// A stack may be changes to another, but not to itself.
func TestStacks(t *testing.T) {
	f := data().parameters
	for _, x := range []struct{ text, want string }{{`{"as": "a"}`, "refers to itself"}, {`{"as": "b"}`, "stack b is missing"}, {`{"as": 1}`, "stack a"}} {
		f.Stacks = map[string]json.RawMessage{"a": json.RawMessage(x.text)}
		if _, err := f.stacks(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s gives %v", x.text, err)
		}
	}
	if a, b := data().stacks["megatron_overlap"], data().stacks["megatron_dedup"]; a.Launches != b.Launches || a.Hidden == b.Hidden || a.Dedup != b.Dedup {
		t.Errorf("%+v, changed from %+v", a, b)
	}
}

// The sizes of the models of the blind test, as their cards round them.
func TestPublishedModels(t *testing.T) {
	for _, x := range []struct {
		name          string
		total, active float64 // 1e9
	}{{"Kimi-K2", 1026, 32}, {"Moonlight-16B-A3B", 16, 3}, {"Qwen3-235B-A22B", 235, 22}, {"Qwen3-30B-A3B", 30.5, 3.3}, {"GPT-OSS-120B", 117, 5.7}, {"DeepSeek-V4-Flash", 284, 13}} {
		c := modelOf(t, x.name, false).Count(4096)
		if c.Total < 0.96e9*x.total || c.Total > 1.04e9*x.total || c.Active < 0.9e9*x.active || c.Active > 1.12e9*x.active {
			t.Errorf("%s has %.1f B parameters, %.2f active; its card says %g and %g", x.name, c.Total/1e9, c.Active/1e9, x.total, x.active)
		}
	}
	windowed, plain := modelOf(t, "GPT-OSS-120B", false), modelOf(t, "GPT-OSS-120B", false)
	plain.Windowed = 0
	if a, b := windowed.attentionFLOPs(4096), plain.attentionFLOPs(4096); a >= 0.54*b || a <= 0.5*b {
		t.Errorf("windows in every other layer leave %.3f of the scores", a/b)
	}
}
