package projection

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"spmoe/bench/ratios"
)

// table7 holds the mean times of dispatch and combine in us, for 4096 tokens per rank on H100 with
// 400 Gb/s per GPU, and how far the formula may be off. Beyond 8 ranks the standard exchange is a
// fit of two numbers to three rows. Source: arXiv 2603.07685, table 7.
var table7 = []struct {
	ranks           int
	standard, dedup float64
	limit           [2]float64
}{
	{8, (1265 + 1277) / 2.0, (661 + 624) / 2.0, [2]float64{0.10, 0.20}},
	{16, (5774 + 5628) / 2.0, (1485 + 1688) / 2.0, [2]float64{0.10, 0.20}},
	{32, (8059 + 7815) / 2.0, (3064 + 3088) / 2.0, [2]float64{0.05, 0.05}},
	{64, (9164 + 8727) / 2.0, (4626 + 4398) / 2.0, [2]float64{0.10, 0.20}},
}

func TestExchange(t *testing.T) {
	for _, row := range table7 {
		for i, want := range []float64{row.standard, row.dedup} {
			dedup := i == 1
			r := Run{Model: "671B", GPU: "H100", GPUs: row.ranks, Precision: "bf16", Seq: 4096, Batch: row.ranks, MicroBatch: 1, TP: 1, PP: 1, VP: 1, EP: row.ranks,
				Recompute: "none", Stack: "megatron_alltoall", Routing: Uniform, Duplicate: 1, Dedup: &dedup}
			e, err := newEstimator(r, Central())
			if err != nil {
				t.Fatal(err)
			}
			if got := 1e3 * e.exchange().Each; math.Abs(got/want-1) > row.limit[i] {
				t.Errorf("EP%d, de-duplicating %v: %.0f us, published %.0f", row.ranks, dedup, got, want)
			}
		}
	}
}

// FLOPs per token are published TFLOP/s over published tokens/s.
func TestPublishedFLOPs(t *testing.T) {
	for _, f := range []struct {
		mtp, causal bool
		flops       float64
	}{
		{false, true, 961e12 / 3848}, {true, true, 1292e12 / 4969}, {false, false, 162.82e12 / 579},
		{false, true, 385e12 / (272.80e9 / 86400 / 2048)},
	} {
		if got := modelOf(t, "671B", f.mtp).TrainFLOPs(4096, f.causal); math.Abs(got/f.flops-1) > 0.005 {
			t.Errorf("MTP %v, causal %v: %.1f GF per token, published %.1f", f.mtp, f.causal, got/1e9, f.flops/1e9)
		}
	}
}

// Four runs of TorchTitan on H100, by the formula alone: terms against kernel times, and the step.
func TestTorchTitan(t *testing.T) {
	text, err := os.ReadFile("measured-torchtitan-h100.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Rows []struct {
			Row      string
			Settings struct {
				Flavor                string
				Layers, GPUs, EP      int
				Batch                 int `json:"local_batch"`
				Attention, Activation string
				Compile               []string
				Checkpoint            string `json:"activation_checkpoint"`
			}
			Measured struct {
				Tokens   float64 `json:"tokens_per_s_per_gpu"`
				Peak     float64 `json:"peak_active_gib"`
				Reserved float64 `json:"peak_reserved_gib"`
				Profile  struct {
					Kinds map[string]float64 `json:"by_kind"`
				} `json:"profiled_step_rank0_ms"`
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, row := range file.Rows {
		s := row.Settings
		r := Run{Model: s.Flavor, GPU: "H100", GPUs: s.GPUs, Precision: "bf16", Seq: 4096, Batch: s.Batch * s.GPUs, MicroBatch: s.Batch,
			TP: 1, PP: 1, VP: 1, EP: s.EP, Layers: s.Layers, Recompute: "full", Stack: "titan_fsdp", Routing: RoundRobin, Duplicate: 1}
		if len(s.Compile) == 2 {
			r.Stack += "_compiled"
		}
		if strings.HasPrefix(s.Attention, "sdpa") {
			r.Stack += "_sdpa"
		}
		if strings.HasPrefix(s.Checkpoint, "selective") {
			r.Recompute = titanOp
		}
		b := must(t, r)
		if off := b.Tokens/row.Measured.Tokens - 1; math.Abs(off) > 0.1 {
			t.Errorf("%s: %.0f tokens/s, measured %.0f", row.Row, b.Tokens, row.Measured.Tokens)
		}
		kinds, tokens := row.Measured.Profile.Kinds, float64(s.Batch*4096)
		for _, x := range []struct {
			symbol Symbol
			ms     float64
		}{
			{Grouped, kinds["grouped"]}, {Dense, kinds["dense"]}, {Attention, kinds["attention"]}, {Update, kinds["optimizer"]},
			{Shuffle, kinds["shuffle"] + kinds["shuffle_bmm32"]}, {Rowwise, kinds["rowwise"] + kinds["loss"]},
		} {
			got := b.Term(x.symbol).MS * tokens
			if math.Abs(math.Log(got/x.ms)) > 0.35 {
				t.Errorf("%s: %v is %.1f ms, kernels take %.1f", row.Row, x.symbol, got, x.ms)
			}
		}
		if gib := b.Memory.Total() / 1.073741824; gib < 0.9*row.Measured.Peak || gib > 1.25*row.Measured.Reserved {
			t.Errorf("%s: %.1f GiB, %.1f measured active and %.1f reserved", row.Row, gib, row.Measured.Peak, row.Measured.Reserved)
		}
	}
}

// No figure of the headline's two later runs is in reach of what predicts them: another figure
// there changes nothing.
func TestHeldOut(t *testing.T) {
	for _, r := range Rows() {
		if r.Published == PublishedDeepEP || r.Published == PublishedMXFP8 {
			if r.Group != "headline" {
				t.Errorf("%s is in group %q", r.ID, r.Group)
			}
		}
		if r.From != "" && slices.ContainsFunc(Rows(), func(o Row) bool { return o.ID == r.From && o.Group == "headline" }) {
			t.Errorf("%s is predicted from %s", r.ID, r.From)
		}
	}
	for _, p := range Parameters() {
		if p.Kind == Calibrated || strings.Contains(p.Source, "859") || strings.Contains(p.Source, "918") {
			t.Errorf("parameter %s: %+v", p.Name, p)
		}
	}
}

// A shape that was measured has its own efficiency; one between two lies between theirs.
func TestEfficiency(t *testing.T) {
	k := tables()["b200"]
	share, far := k.share("gemm", wgrad, false, 4096, 7168, 1536)
	if math.Abs(share-0.5448) > 1e-3 || far != 0 {
		t.Errorf("a measured shape has the share %.4f at distance %g", share, far)
	}
	low, _ := k.share("grouped", forward, false, 256, 7168, 4096)
	high, _ := k.share("grouped", forward, false, 512, 7168, 4096)
	if between, _ := k.share("grouped", forward, false, 360, 7168, 4096); between <= low || between >= high {
		t.Errorf("360 rows have the share %.4f, 256 %.4f, 512 %.4f", between, low, high)
	}
	if _, far := k.share("gemm", forward, false, 4096, 64, 64); far < 2 {
		t.Errorf("a tiny product lies %g from the nearest", far)
	}
	h := tables()["h200"]
	if fp8, _ := h.share("gemm", forward, true, 8192, 8192, 8192); math.Abs(fp8-1358.6/1979) > 1e-2 {
		t.Errorf("FP8 of the H200: %.4f", fp8)
	}
}

// What-ifs move the throughput the way they must.
func TestWhatIf(t *testing.T) {
	on, off, all := true, false, 1.0
	deep := Target()
	deep.Stack, deep.Routing = "titan_deepep", Uniform
	for _, x := range []struct {
		what   string
		from   Run
		change func(*Run)
		faster bool
	}{
		{"a faster network card", Target(), func(r *Run) { r.NIC = 100 }, true},
		{"NVLink around all", Target(), func(r *Run) { r.NVLinkDomain = 72 }, true},
		{"no duplicates on the wire", Target(), func(r *Run) { r.Dedup = &on }, true},
		{"duplicates on the wire", deep, func(r *Run) { r.Dedup = &off }, false},
		{"a hidden exchange", Target(), func(r *Run) { r.Hidden = &all }, true},
		{"MXFP8 on the wire", Target(), func(r *Run) { r.Wire = "mxfp8" }, true},
		{"MXFP8 experts", Target(), func(r *Run) { r.Precision = "mxfp8-experts" }, true},
		{"MXFP8 everywhere", Target(), func(r *Run) { r.Precision = "mxfp8" }, true},
		{"top-4", Target(), func(r *Run) { r.TopK = 4 }, true},
		{"two groups a token", deep, func(r *Run) { r.GroupLimit = 2 }, true},
		{"all groups a token", deep, func(r *Run) { r.GroupLimit = 8 }, false},
		{"two nodes", deep, func(r *Run) { r.EP = 16 }, true},
		{"duplicated tokens", deep, func(r *Run) { r.Duplicate = 2 }, false},
		{"random routing", func() Run { r := deep; r.Routing = RoundRobin; return r }(), func(r *Run) { r.Routing = Uniform }, false},
		{"one microbatch a pipeline", Target(), func(r *Run) { r.Batch = 64; r.PP = 4; r.EP = 64 }, false},
	} {
		changed := x.from
		x.change(&changed)
		a, err := throughput(x.from, Central())
		if err != nil {
			t.Fatal(err)
		}
		if err := changed.Check(); err != nil {
			t.Fatalf("%s: %v", x.what, err)
		}
		b, err := throughput(changed, Central())
		if err != nil {
			t.Fatal(err)
		}
		if b > a != x.faster {
			t.Errorf("%s: %.0f tokens/s, before %.0f", x.what, b, a)
		}
	}
}

// The residual stays with the stack, model and GPU that it was fitted on.
func TestCarried(t *testing.T) {
	for _, x := range []struct {
		change func(*Run)
		has    bool
	}{
		{func(*Run) {}, true}, {func(r *Run) { r.Stack = "titan_deepep" }, true}, {func(r *Run) { r.EP = 64 }, true},
		{func(r *Run) { r.Stack = "megatron_dedup" }, false}, {func(r *Run) { r.Model = "16B" }, false}, {func(r *Run) { r.GPU = "GB200" }, false},
	} {
		r := Target()
		x.change(&r)
		got, err := Carried(r, Central())
		if err != nil || got != 0 != x.has || got < 0 {
			t.Errorf("%+v carries %g (%v)", r, got, err)
		}
	}
}

func TestTornado(t *testing.T) {
	swings, err := HeadlineTornado()
	if err != nil {
		t.Fatal(err)
	}
	if len(swings) < 6 || swings[0].Name != "duplicate" {
		t.Fatalf("%+v", swings)
	}
	for i := 1; i < len(swings); i++ {
		if math.Abs(swings[i].AtHigh-swings[i].AtLow) > math.Abs(swings[i-1].AtHigh-swings[i-1].AtLow) {
			t.Errorf("%s stands behind %s", swings[i].Name, swings[i-1].Name)
		}
	}
}

func TestFromRatios(t *testing.T) {
	f := ratios.File{
		Model: ratios.Shape{Name: "small", Experts: 8, TopK: 2, Groups: 1, Limit: 1}, Steps: 3,
		Layers:   []ratios.Layer{{Layer: 1, Places: []ratios.Place{{Places: 2, Distinct: 1.2, Imbalance: 1.1}, {Places: 8, Distinct: 2, Imbalance: 1.5}}}, {Layer: 2, Places: []ratios.Place{{Places: 2, Distinct: 1.4, Imbalance: 1.3}, {Places: 8, Distinct: 2, Imbalance: 1.9}}}},
		Phases:   map[string]float64{"exchange": 0.2, "bf16 grouped forward": 0.1, "bf16 grouped wgrad": 0.1},
		Products: []ratios.Product{{Name: "experts_down", Time: 0.5}, {Name: "o", Time: 0.9}}, Exchange: []ratios.Exchange{{Time: 0.25}},
	}
	r, err := FromRatios(f, 2)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(r.RankImbalance-1.2) > 1e-12 || math.Abs(r.DistinctOverUniform-1.3/Distinct(2, 4, 2)) > 1e-12 {
		t.Errorf("%+v", r)
	}
	if r, err := FromRatios(f, 32); err != nil || math.Abs(r.RankImbalance-1.7) > 1e-12 {
		t.Errorf("the nearest layout to 32: %+v, %v", r, err)
	}
	deep, mx, ok := EngineOnly(f)
	if !ok || math.Abs(deep-651/0.85) > 1e-9 || math.Abs(mx-651/0.75) > 1e-9 {
		t.Errorf("from times alone: %g, %g, %v", deep, mx, ok)
	}
	if why := Mismatch(f, modelOf(t, "671B", false)); !strings.Contains(why, "experts 8, not 256") || !strings.Contains(why, "top-k 2, not 8") {
		t.Errorf("%q", why)
	}
	f.Layers, f.Phases = nil, nil
	if _, err := FromRatios(f, 2); err == nil {
		t.Error("ratios without routing are taken")
	}
	if _, _, ok := EngineOnly(f); ok {
		t.Error("a projection from no times")
	}
}

// The values that the parameter file derives from measurements of an H200 are computed again.
func TestDerived(t *testing.T) {
	var bf16, fp8, standard, allToAll float64 // us
	for _, r := range data().h200Rows {
		switch {
		case r.Op == "gemm" && r.N != 129280: // the head stays in BF16
			bf16, fp8 = bf16+r.BF16, fp8+r.FP8
		case r.Op == "moe_dispatch_standard" && r.Tokens == 4096:
			standard = r.Micros
		case r.Op == "nccl_all_to_all" && r.MiB == 256:
			allToAll = r.Micros / (256 << 20) // a byte
		}
	}
	if ratio := bf16 / fp8; math.Abs(ratio-Central()[denseSpeedup]) > 0.05 {
		t.Errorf("FP8 products are %.3f times as fast, the parameter is %g", ratio, Central()[denseSpeedup])
	}
	// Dispatch of 4096 tokens of 7168 in BF16 to 8 experts each: what the all-to-all leaves moves
	// all rows four times.
	const rows = 4096 * 8 * 7168 * 2
	left := standard - allToAll*rows
	if share := 4 * rows / (left * 1e-6) / 4.8e12; math.Abs(share-Central()[shuffleShare]) > 0.03 {
		t.Errorf("the local shuffle reaches %.3f of the memory bandwidth, the parameter is %g", share, Central()[shuffleShare])
	}
	h, err := HardwareByName("H200")
	if err != nil {
		t.Fatal(err)
	}
	if share := 0.75 / (allToAll * 1e-6) / 1e9 / h.NVLink.Value; math.Abs(share-h.NVLinkAllToAll.At(4)) > 0.02 {
		t.Errorf("the all-to-all reaches %.3f of NVLink, the hardware file has %g", share, h.NVLinkAllToAll.At(4))
	}
}
