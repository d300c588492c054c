package projection

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A run that cannot be is refused, and told what can.
func TestRefused(t *testing.T) {
	for _, x := range []struct {
		what   string
		change func(*Run)
		want   []string
	}{
		{"model", func(r *Run) { r.Model = "70B" }, []string{`model "70B"`, "671B", "Kimi-K2"}},
		{"gpu", func(r *Run) { r.GPU = "B100" }, []string{`GPU "B100"`, "GB300"}},
		{"stack", func(r *Run) { r.Stack = "jax" }, []string{`stack "jax"`, "titan_standard"}},
		{"precision", func(r *Run) { r.Precision = "fp4" }, []string{`precision "fp4"`, "mxfp8"}},
		{"no MX units", func(r *Run) { r.GPU, r.Precision = "H200", "mxfp8" }, []string{"which has no MX units: use fp8"}},
		{"routing", func(r *Run) { r.Routing = "random" }, []string{`routing "random"`, "uniform"}},
		{"recompute", func(r *Run) { r.Recompute = "all" }, []string{`recompute "all"`, "selective"}},
		{"wire", func(r *Run) { r.Wire = "fp8" }, []string{`wire is "fp8"`}},
		{"tp", func(r *Run) { r.TP = 0 }, []string{"tp is 0"}},
		{"ep", func(r *Run) { r.EP = 48 }, []string{"ep 48 times pp 2 does not divide 256 GPUs", "--ep 64"}},
		{"experts", func(r *Run) { r.GPUs, r.EP, r.Batch = 384, 96, 4608 }, []string{"ep 96 does not divide 256 experts", "the nearest that does"}},
		{"batch", func(r *Run) { r.Batch = 100 }, []string{"do not divide a batch of 100"}},
		{"stages", func(r *Run) { r.PP, r.VP, r.EP = 16, 4, 16 }, []string{"is more than 61 layers"}},
		{"duplicate", func(r *Run) { r.Duplicate = 4 }, []string{"duplicate is 4 but tp 2"}},
		{"top-k", func(r *Run) { r.TopK = 300 }, []string{"top-k 300", "at most 128"}},
		{"memory", func(r *Run) { r.GPUs, r.Batch = 32, 512; r.EP = 16 }, []string{"needs", "GB a GPU", "B200 has 180"}},
		{"no GPUs", func(r *Run) { r.GPUs, r.TP, r.PP, r.EP = 1, 1, 1, 1 }, []string{"GB a GPU", "give another number of GPUs"}},
	} {
		r := Target()
		x.change(&r)
		_, err := Project(r, Central())
		if err == nil {
			t.Errorf("%s: not refused", x.what)
			continue
		}
		for _, w := range x.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v: want %q in it", x.what, err, w)
			}
		}
	}
}

// What a refusal suggests is possible.
func TestSuggestionFits(t *testing.T) {
	r := Target()
	r.EP = 48
	m := modelOf(t, r.Model, false)
	near, ok := r.nearest(m)
	if !ok {
		t.Fatal("nothing is near")
	}
	if _, err := Project(near, Central()); err != nil {
		t.Errorf("%+v: %v", near, err)
	}
}

// cut finds the smallest largest piece: never worse than any other way to cut, for few blocks.
func TestCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		n, gpus := 3+rng.IntN(6), 2+rng.IntN(2)
		blocks := make([]float64, n)
		total := 0.0
		for i := range blocks {
			blocks[i] = 0.2 + rng.Float64()
			total += blocks[i]
		}
		best := math.Inf(1)
		for mask := range 1 << (n - 1) { // every set of ends
			loads, at := make([]float64, gpus), 0
			for i, b := range blocks {
				if at >= gpus {
					break
				}
				loads[at] += b
				if mask>>i&1 == 1 {
					at++
				}
			}
			if at == gpus-1 {
				best = min(best, slices.Max(loads))
			}
		}
		if got := cut(blocks, around(gpus, gpus)) * total / float64(gpus); math.Abs(got-best) > 1e-6 {
			t.Fatalf("%v on %d: the fullest has %.6f, the best cut leaves %.6f", blocks, gpus, got, best)
		}
	}
	if got := cut([]float64{1, 1, 1, 1, 1, 1, 1, 1}, around(4, 2)); got != 1 {
		t.Errorf("eight equal blocks in four pieces on two GPUs: %g", got)
	}
}

// The memory of the measured one-node cases, GiB as published, within a fifth.
func TestMemory(t *testing.T) {
	for id, gib := range map[string]float64{"v3-ep8-pp1-mbc4": 104.3, "v3-ep4-pp2-mbc4": 114, "v2-ep8-pp1-mbc4": 45.6, "v2-ep4-pp2-mbc4": 44.7} {
		r := publishedRun(id)
		m, err := r.model()
		if err != nil {
			t.Fatal(err)
		}
		got := r.memory(m).Total()
		if want := gib * 1.073741824; math.Abs(got/want-1) > 0.2 {
			t.Errorf("%s: %.1f GB, published %.1f", id, got, want)
		}
	}
}

// Whatever divides and fits has a throughput, a memory and terms.
func TestAnyRun(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	power := func(most int) int { return 1 << rng.IntN(most) }
	fine := 0
	for range 8000 {
		r := Run{
			Model: pick([]string{"Nemotron-3-Super-120B-A12B", "Qwen3-Next-80B-A3B", "DeepSeek-V4-Pro", "Mixtral-8x22B", "Llama-3-70B", "debug", "small", "16B", "236B", "671B", "Kimi-K2", "Qwen3-235B-A22B", "Qwen3-30B-A3B", "671B-4L", "GPT-OSS-120B", "DeepSeek-V4-Flash", "Moonlight-16B-A3B"}), GPU: pick(GPUs()), GPUs: power(12), Precision: pick(Precisions()),
			Seq: power(15), Batch: power(14), MicroBatch: power(4), MTP: rng.IntN(2) == 0, TP: power(4), PP: power(5), VP: power(4), EP: power(8), Recompute: pick(append(Recomputes(), "mlp+moe_act", "core_attn")),
			Stack: pick(Stacks()), Routing: pick([]string{RoundRobin, Uniform}), Duplicate: power(2), CP: power(3), Layers: rng.IntN(2) * (1 + rng.IntN(20)), TopK: rng.IntN(3) * 2, GroupLimit: rng.IntN(3), NVLinkDomain: rng.IntN(3) * 3,
		}
		m, err := r.model()
		if err != nil || r.indivisible(m) != "" || r.memory(m).Total() > 80 {
			continue // to look for the nearest that is possible takes long
		}
		if r.Precision != "bf16" && r.Precision != "fp8" && strings.HasPrefix(r.GPU, "H") {
			continue
		}
		fine++
		b, err := Project(r, Central())
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if !positive(b.Tokens) || !positive(b.MFU) || !positive(b.Memory.Total()) || !positive(b.Step) {
			t.Fatalf("%+v: %+v", r, b)
		}
		for _, x := range b.Terms {
			if !(x.MS > 0) {
				t.Fatalf("%+v: term %+v", r, x)
			}
		}
	}
	if fine < 100 {
		t.Errorf("only %d runs were possible", fine)
	}
}

// around returns stages that go around the GPUs.
func around(stages, gpus int) []int {
	return Run{GPUs: gpus, TP: 1, PP: gpus, VP: stages / gpus, Batch: gpus, MicroBatch: 1}.stages()
}

// The bubble is that of the lists, which the published formulas give: the idle time over the busy
// time. It does not depend on how many micro-batches the simulated lists have.
func TestBubble(t *testing.T) {
	for _, c := range []struct {
		schedule string
		vp       int
		idle     float64 // of stages with F = I = W, in p-1 of their forward passes
	}{{"", 1, 3}, {"", 2, 3}, {"", 4, 3}, {"InterleavedZeroBubble", 2, 1}, {"ZBVZeroBubble", 2, 1}, {"DualPipeV", 2, 2}} {
		for _, pp := range []int{1, 2, 8} {
			for _, microBatches := range []int{2 * pp, 64, 1024} {
				r := Run{GPUs: pp, TP: 1, PP: pp, VP: c.vp, Batch: microBatches, MicroBatch: 1, Schedule: c.schedule}
				want := c.idle * float64(pp-1) / float64(3*c.vp*microBatches)
				if got := r.bubble(); math.Abs(got-want) > 1e-12 {
					t.Errorf("%s, pp %d, vp %d, %d micro-batches: bubble %g, want %g", r.schedule(), pp, c.vp, microBatches, got, want)
				}
			}
		}
	}
}

// V-shaped schedules have the first and the last stage on one GPU.
func TestStages(t *testing.T) {
	r := Run{GPUs: 4, TP: 1, PP: 4, VP: 2, Batch: 16, MicroBatch: 1}
	for name, want := range map[string][]int{"": {0, 1, 2, 3, 0, 1, 2, 3}, "DualPipeV": {0, 1, 2, 3, 3, 2, 1, 0}} {
		if r.Schedule = name; !slices.Equal(r.stages(), want) {
			t.Errorf("%s: %v, want %v", r.schedule(), r.stages(), want)
		}
	}
}

// A schedule that has no lists for a layout is refused, and the error says why.
func TestScheduleOfRun(t *testing.T) {
	r := Target()
	for schedule, want := range map[string]string{"GPipe": "unknown schedule", "1F1B": "has 1 per rank", "DualPipeV": ""} {
		r.Schedule = schedule
		if err := r.Check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s with vp %d: %v", schedule, r.VP, err)
		}
	}
}
