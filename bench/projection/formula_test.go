package projection

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"spmoe/moe"
)

func modelOf(t *testing.T, name string, mtp bool) Model {
	t.Helper()
	m, err := ModelByName(name, mtp)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// rounded compares a number with one that has a few decimals. A part in ten thousand is
// for the weights of norms, which some count as products.
func rounded(t *testing.T, what string, got, want float64, decimals int) {
	t.Helper()
	if math.Abs(got-want) > 0.5*math.Pow10(-decimals)+1e-4*math.Abs(want) {
		t.Errorf("%s is %.*f, want %.*f", what, decimals+2, got, decimals, want)
	}
}

// The totals are those of the model that trains, to the parameter.
func TestParametersAreTheModels(t *testing.T) {
	for _, f := range moe.Flavors() {
		if _, err := ModelByName(f.Name, false); (err != nil) != (f.Config.IndexHeads > 0) {
			t.Errorf("%s: %v", f.Name, err)
		}
		if f.Config.IndexHeads > 0 {
			continue
		}
		dense, routed := modelOf(t, f.Name, false).parameters()
		if want := f.Config.Count(); dense+routed != float64(want.Total) {
			t.Errorf("%s: %.0f parameters, the model has %d", f.Name, dense+routed, want.Total)
		}
	}
	for name, total := range map[string]float64{ // as their cards round them, 1e9
		"Nemotron-3-Nano-30B-A3B": 31.6, "Nemotron-3-Super-120B-A12B": 120, "Qwen3-Next-80B-A3B": 80, "Mixtral-8x22B": 141,
		"Llama-3-8B": 8, "Llama-3-70B": 70, "Llama-3.1-405B": 405, "GPT-OSS-20B": 21,
	} {
		dense, routed := modelOf(t, name, false).parameters()
		if got := (dense + routed) / 1e9; math.Abs(got/total-1) > 0.03 {
			t.Errorf("%s has %.1f B parameters, its card says %g", name, got, total)
		}
	}
}

// FLOPs per token as Megatron counts them, and published tokens/s as TFLOP/s.
func TestAccounting(t *testing.T) {
	v3, mtp := modelOf(t, "671B", false), modelOf(t, "671B", true)
	rounded(t, "GFLOPs at 4K", v3.TrainFLOPs(4096)/1e9, 250.5, 1)
	rounded(t, "GFLOPs at 8K", v3.TrainFLOPs(8192)/1e9, 281.2, 1)
	rounded(t, "GFLOPs at 4K with MTP", mtp.TrainFLOPs(4096)/1e9, 260.6, 1)
	for _, x := range []struct {
		model        Model
		tokens, want float64
		seq          int
	}{{v3, 651, 183, 8192}, {v3, 859, 241.5, 8192}, {v3, 918, 258.1, 8192}, {mtp, 3328, 867.4, 4096}, {v3, 3139, 786.2, 4096}} {
		rounded(t, fmt.Sprintf("TFLOP/s at %.0f", x.tokens), x.model.TrainFLOPs(x.seq)*x.tokens/1e12, x.want, 0)
	}
}

// round is a table of constants with which the arithmetic can be done by hand: half the peak for
// every product, all of the bandwidths, and nothing hidden.
func round() Constants {
	k := Constants{}
	for _, c := range Table() {
		c.Value = map[string]float64{
			"dense": 0.5, "grouped": 0.5, "attention": 0.5, "fp8": 2, "fp8_hopper": 2, "fp4": 4, "optimizer": 30,
			"chip_gb200": 1, "chip_gb300": 1, "chip_hopper": 1, "chip_amd": 1, "rowwise": 1, "scan": 1, "sparse": 1, "cast": 1, "cast_apart": 2, "shuffle": 1,
			"host_eager":   1,
			"nic_exchange": 1, "nic_deepep": 0.5, "nvlink_exchange": 1, "collective": 1, "tensor": 1, "nic_data": 1, "nvlink_data": 1, "sharded": 1, "hidden": 0.75,
		}[c.Name]
		k[c.Name] = c
	}
	return k
}

func costOf(t *testing.T, k Constants, r Run) costs {
	t.Helper()
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	e, err := newEstimate(r)
	if err != nil {
		t.Fatal(err)
	}
	return k.cost(e.run, e.gpu, e.work)
}

// The published run of 651 tokens/s by hand: 2250 TFLOP/s, 7.7 TB/s, 900 and 50 GB/s.
func TestByHand(t *testing.T) {
	c := costOf(t, round(), Target())
	const half = 1125e9 // FLOPs per millisecond
	routed := 58 * 8 * 3 * 2 * 7168 * 2048.0
	attention := 7168*1536 + 1536*128*192 + 7168*576 + 512*128*256 + 128*128*7168.0
	other := 2 * (61*attention + 3*3*7168*18432 + 58*3*7168*2048)
	plain := 4*2*58*7168*256 + 3*2*7168*129280.0 // the router is recomputed, the head is not
	scores := 61 * 8192 * 128 * 320.0            // causal: half of 2·S·heads·(192 + 128)
	row := 2 * 7168.0
	for _, x := range []struct {
		what      Symbol
		want      float64
		tolerance float64
	}{
		{Grouped, 4 * routed / half, 1e-9},
		{Dense, (4*other + plain) / half, 1e-9},
		{Attention, 4.5 * scores / half, 1e-9},
		{Shuffle, 58 * (48 + 19) * 8 * row * 4 / 3 / 7.7e9, 1e-9}, // both ranks of a pair sum all choices
		{AllToAll, 58 * 6 * 8 * row * 0.75 / 50e6, 1e-9},          // three quarters leave the node
		{TensorComm, 61 * 12 * row / 900e6, 1e-9},
		{Pipeline, (c.sum() - c[Pipeline] - c[DataComm] - c[Update]) / 128, 1e-9}, // (PP - 1)/(micro-batches · VP)
		{Update, 671.03e9 * 30 / 256 / 7.7e9 / 131072, 1e-3},
	} {
		if math.Abs(c[x.what]/x.want-1) > x.tolerance {
			t.Errorf("%s is %.6f ms per token, by hand %.6f", x.what, c[x.what], x.want)
		}
	}
	// Routed: 654 B over 64 GPUs, and no other GPU of a node has the same. Others: 17 B over four,
	// with four replicas per node.
	dense, held := 17.2e9/4/4, 653.9e9/64
	if want := 6 * (dense + held) / (0.85 * 50e6) / 131072; math.Abs(c[DataComm]/want-1) > 0.01 {
		t.Errorf("t_dp is %.6f ms per token, by hand %.6f", c[DataComm], want)
	}
}

// What each setting changes, and by how much with round constants.
func TestSettings(t *testing.T) {
	k := round()
	base := costOf(t, k, Target())
	for _, x := range []struct {
		what   string
		change func(*Run)
		term   Symbol
		times  float64
	}{
		{"8 bits", func(r *Run) { r.Precision = "mxfp8-experts" }, Grouped, 0.5},
		{"4 bits", func(r *Run) { r.Precision = "nvfp4" }, Grouped, 0.25},
		{"dispatched twice", func(r *Run) { r.Duplicate = 2 }, AllToAll, 2},
		{"hidden", func(r *Run) { r.Overlap = true }, AllToAll, 0.25},
		{"one copy per node", func(r *Run) { r.Exchange = "dedup" }, AllToAll, 0.125 * 2}, // all eight experts are on one rank, DeepEP at half the rate
		{"one copy per node, Megatron", func(r *Run) { r.Exchange, r.Software = "dedup", "megatron" }, AllToAll, 0.125},
		{"fewer touches", func(r *Run) { r.Exchange = "dedup" }, Shuffle, 27.0 / 67},
		{"a faster card", func(r *Run) { r.NIC = 100 }, AllToAll, 0.5},
		{"nothing recomputed", func(r *Run) { r.Recompute = "none" }, Grouped, 0.75},
		{"half of the batch", func(r *Run) { r.Batch /= 2 }, Update, 2},
	} {
		r := Target()
		x.change(&r)
		if got := costOf(t, k, r)[x.term] / base[x.term]; math.Abs(got-x.times) > 1e-9 {
			t.Errorf("%s: %s is %.4f times as long, want %g", x.what, x.term, got, x.times)
		}
	}
	set := func(name string, v float64) {
		c := k[name]
		c.Value = v
		k[name] = c
	}
	set("natural", 0.5)
	r := Target()
	r.Routing, r.Imbalance = Natural, 1.4
	if c := costOf(t, k, r); math.Abs(c[Imbalance]/(c[Dense]+c[Grouped]+c[Attention]+c[Memory]+c[Shuffle]+c[AllToAll]+c[TensorComm])-0.2) > 1e-9 {
		t.Errorf("an imbalance of 1.4 costs %.4f", c[Imbalance])
	}
	// 61 layers of 12 ms and 464 experts of 0.25 ms, a third of a pass again, over 4096 tokens.
	set("host_layer", 12)
	set("host_expert", 0.25)
	set("host_eager", 3)
	gpu, host := base.sum()-base[Pipeline]-base[DataComm]-base[Update], 3*(61*12+58*8*0.25*0.3)*4/3/4096.0
	if c, want := costOf(t, k, Target()), math.Pow(math.Pow(gpu, 4)+math.Pow(host, 4), 0.25)-gpu; math.Abs(c[Host]/want-1) > 1e-6 {
		t.Errorf("the host costs %.6f ms per token, by hand %.6f", c[Host], want)
	}
}

// Quantizing the operands of experts costs, and twice as much if both ranks of a pair compute them:
// for two products, gate and up together, with a recomputed forward pass.
func TestCasts(t *testing.T) {
	in, out := 7168+2048.0, 2*2048+7168.0
	weights := 3 * 7168 * 2048 * 8.0 // of the eight experts of a rank
	for software, want := range map[string]float64{
		"pytorch":    58 * 2 * 8 * (2*in + out) * (2 + 2*33/32.0),
		"torchtitan": 2 * 58 * (2*8*(3*in+2*out) + 3*weights/4096) * (2 + 33/32.0),
	} {
		r := Target()
		r.Software, r.Exchange, r.Duplicate = software, "dedup", 2
		plain := costOf(t, round(), r)
		r.Precision = "mxfp8-experts"
		if got := costOf(t, round(), r)[Memory] - plain[Memory]; math.Abs(got*7.7e9/want-1) > 1e-9 {
			t.Errorf("%s moves %.4g bytes per token to quantize, by hand %.4g", software, got*7.7e9, want)
		}
	}
}

// DeepSeek-V4's indexers and gathered keys cost.
func TestSparseAttention(t *testing.T) {
	m := modelOf(t, "DeepSeek-V4-Flash", false)
	if got, want := m.sparseBytes(4096), 64*1024*24/2+330*1024*3.5; got != want {
		t.Errorf("%.0f bytes per token and layer, by hand %.0f", got, want)
	}
}

// A run that cannot be is refused, with what was given and what can be.
func TestRefused(t *testing.T) {
	for _, x := range []struct {
		change func(*Run)
		want   string
	}{
		{func(r *Run) { r.Model = "70B" }, `model "70B" is unknown: use one of`},
		{func(r *Run) { r.GPU = "B100" }, `GPU "B100" is unknown: use one of B200`},
		{func(r *Run) { r.GPU, r.Precision = "H200", "mxfp8" }, "which has no MX units: use fp8"},
		{func(r *Run) { r.Routing = Natural }, "give 1 or more with routing natural"},
		{func(r *Run) { r.Recompute = "all" }, `recompute "all" is unknown: use one of none, selective`},
		{func(r *Run) { r.EP = 48 }, "ep 48 times pp 2 does not divide 256 GPUs"},
		{func(r *Run) { r.GPUs, r.EP, r.Batch = 384, 96, 4608 }, "ep 96 does not divide 256 experts"},
		{func(r *Run) { r.PP, r.VP, r.EP = 16, 4, 16 }, "is more than 61 layers"},
		{func(r *Run) { r.GPU = "H100" }, "need 89 GB per GPU without any activation, the H100 has 80: give more GPUs"},
	} {
		r := Target()
		x.change(&r)
		if _, err := Project(r); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: want %q in it", err, x.want)
		}
	}
	for text, want := range map[string]string{
		`{`:            "x.json: ",
		`{"name":"X"}`: "field bf16_tflops is 0: give a positive number",
		`{"name":"X","bf16_tflops":1,"hbm_gb":1,"hbm_tbs":1,"nvlink_gbs":1,"nvlink_domain":1,"nic_gbs":1,"fp8":"fast"}`: `field fp8 is "fast"`,
		`{"bf16_tflops":1,"hbm_gb":1,"hbm_tbs":1,"nvlink_gbs":1,"nvlink_domain":1,"nic_gbs":1,"fp8":"fp8"}`:             "field name is missing",
	} {
		if _, err := ParseHardware("x.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
}

// A model in a file is that of the same entry, and mistakes are named.
func TestParseModel(t *testing.T) {
	text := `{"name":"mine","flavor":"30B-A3B","layers":94,"dim":4096,"heads":64,"expert_inter":1536,"source":"me","attention_rate":1.2}`
	m, err := ParseModel("x.json", []byte(text), false)
	if want := modelOf(t, "Qwen3-235B-A22B", false); err != nil || m.Config != want.Config || m.Variant != want.Variant {
		t.Errorf("%+v, %v, want %+v", m, err, want)
	}
	for text, want := range map[string]string{
		`{`:                         "x.json: ",
		`{"flavor":"16B"}`:          "name is missing",
		`{"name":"a","flavor":"x"}`: "x",
		`{"name":"a","flavor":"16B","top_k":999}`: "top_k",
	} {
		if _, err := ParseModel("x.json", []byte(text), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
}
