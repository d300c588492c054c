package projection

import (
	"fmt"
	"math"
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

// rounded compares a number with one that is given to so many decimals. A part in ten thousand is
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
		m := modelOf(t, f.Name, false)
		c, want := m.Count(4096), f.Config.Count()
		if c.Total != float64(want.Total) || c.Active != float64(want.Active) {
			t.Errorf("%s: %.0f parameters, %.0f active; the model has %d and %d", f.Name, c.Total, c.Active, want.Total, want.Active)
		}
		// TorchTitan's FLOPs count norms as if they were products: they are a part in a thousand.
		if got, want := m.TrainFLOPs(4096, false), f.Config.FLOPsPerToken(4096); math.Abs(got/want-1) > 2e-3 {
			t.Errorf("%s: %g FLOPs per token, the trainer counts %g", f.Name, got, want)
		}
	}
}

// The accounting of DeepSeek-V3 and of the 16B model, to the digits in which it is known.
func TestAccounting(t *testing.T) {
	v3, small := modelOf(t, "671B", false), modelOf(t, "16B", false)
	c, d := v3.Count(4096), small.Count(4096)
	sum := func(list []moe.LinearLayer) (n float64) {
		for _, l := range list {
			n += float64(l.Params())
		}
		return n / 1e6
	}
	for _, x := range []struct {
		what      string
		got, want float64
		decimals  int
	}{
		{"MLA parameters, M", sum(v3.linears(false, moe.Projections)), 187.1, 1},
		{"dense FFN", sum(v3.linears(false, moe.Dense)), 396.4, 1},
		{"one expert", sum(v3.linears(false, moe.Routed)), 44.04, 2},
		{"router", float64(v3.Dim*v3.Experts) / 1e6, 1.84, 2},
		{"head", sum(v3.head()), 927, 0},
		{"total, B", c.Total / 1e9, 671.03, 2},
		{"active", c.Active / 1e9, 37.55, 2},
		{"matmul", c.Matmul / 1e9, 36.62, 2},
		{"routed, GF forward", c.Routed / 1e9, 40.87, 2},
		{"other matmul", c.Other / 1e9, 32.38, 2},
		{"attention, causal, 4K", c.Attention / 1e9, 10.23, 2},
		{"attention, causal, 8K", v3.Count(8192).Attention / 1e9, 20.47, 2},
		{"one MTP depth", modelOf(t, "671B", true).Count(4096).MTP / 1e9, 3.23, 2},
		{"train, 4K causal", v3.TrainFLOPs(4096, true) / 1e9, 250.5, 1},
		{"train, 4K causal, MTP", modelOf(t, "671B", true).TrainFLOPs(4096, true) / 1e9, 260.6, 1},
		{"train, 4K all scores", v3.TrainFLOPs(4096, false) / 1e9, 281.2, 1},
		{"train, 8K causal", v3.TrainFLOPs(8192, true) / 1e9, 281.2, 1},
		{"train, 8K all scores", v3.TrainFLOPs(8192, false) / 1e9, 342.6, 1},
		{"routed with everything computed again", 4 * c.Routed / 1e9, 163.5, 1},
		{"other with everything computed again", 4 * c.Other / 1e9, 129.5, 1},
		{"16B total", d.Total / 1e9, 15.71, 2},
		{"16B active", d.Active / 1e9, 2.66, 2},
		{"16B matmul", d.Matmul / 1e9, 2.45, 2},
		{"16B routed", d.Routed / 1e9, 2.70, 2},
		{"16B other", d.Other / 1e9, 2.20, 2},
		{"16B train, 4K all scores", small.TrainFLOPs(4096, false) / 1e9, 18.1, 1},
	} {
		rounded(t, x.what, x.got, x.want, x.decimals)
	}
}

// Bytes of the exchange and of the other traffic of the published runs.
func TestTraffic(t *testing.T) {
	v3 := modelOf(t, "671B", false)
	k, layers := float64(v3.TopK), float64(v3.mainMoE())
	for _, x := range []struct {
		what      string
		got, want float64
		decimals  int
	}{
		{"BF16 copies of a token-layer, B", k * v3.RowBytes("bf16"), 114688, 0},
		{"MXFP8 copies", k * v3.RowBytes("mxfp8"), 59136, 0},
		{"four all-to-alls, MB per token", 4 * k * v3.RowBytes("bf16") * layers / 1e6, 26.6, 1},
		{"FP8 forward dispatch", (k*v3.RowBytes("mxfp8") + 3*k*v3.RowBytes("bf16")) * layers / 1e6, 23.4, 1},
		{"six, computed again", 6 * k * v3.RowBytes("bf16") * layers / 1e6, 39.9, 1},
		{"between four nodes", 0.75 * 6 * k * v3.RowBytes("bf16") * layers / 1e6, 29.9, 1},
		{"at line rate, ms", millis(0.75*6*k*v3.RowBytes("bf16")*layers, 50e9), 0.599, 3},
		{"routed parameters of a GPU, B", layers * 256 * 3 * 7168 * 2048 / 2 / 32 / 1e9, 10.2, 1},
		{"optimizer traffic, GB", v3.Count(4096).Total / 256 * 30 / 1e9, 79, 0},
	} {
		rounded(t, x.what, x.got, x.want, x.decimals)
	}
	e, err := newEstimator(Target(), Central())
	if err != nil {
		t.Fatal(err)
	}
	x := e.exchange()
	if x.Operations != 6 || x.Bytes != 114688 || x.NIC != 0.75*114688 {
		t.Errorf("the published run's exchange is %+v", x)
	}
	rounded(t, "all-to-alls of the published run, ms per token", x.Total*layers, 0.675, 3)
	rounded(t, "bubble", 100*Target().bubble(), 0.8, 1)
	c := e.total()
	if c[TensorComm] < 0.015 || c[TensorComm] > 0.03 || c[DataComm] > 0.02 || c[Update] > 0.001 {
		t.Errorf("tensor parallel %.4f, data parallel %.4f, optimizer %.4f ms: want 0.02 to 0.03 and two small terms", c[TensorComm], c[DataComm], c[Update])
	}
}

// Published tokens/s, converted to TFLOP/s.
func TestPublishedRates(t *testing.T) {
	v3, mtp := modelOf(t, "671B", false), modelOf(t, "671B", true)
	for _, x := range []struct {
		model        Model
		tokens       float64
		seq          int
		causal, full float64
	}{
		{v3, 651, 8192, 183, 223}, {v3, 859, 8192, 241.5, 294.3}, {v3, 918, 8192, 258.1, 314.5},
		{mtp, 3328, 4096, 867.4, 971.3}, {v3, 3139, 4096, 786.2, 882.5}, {v3, 579, 4096, 145, 162.8},
	} {
		rounded(t, fmt.Sprintf("causal TFLOP/s at %.0f", x.tokens), x.model.TrainFLOPs(x.seq, true)*x.tokens/1e12, x.causal, 0)
		if x.model.MTPLayers == 0 {
			rounded(t, fmt.Sprintf("TFLOP/s at %.0f", x.tokens), x.model.TrainFLOPs(x.seq, false)*x.tokens/1e12, x.full, 0)
		}
	}
}

// Hybrids, dense models and cut ones: sizes as their cards round them.
func TestOtherModels(t *testing.T) {
	for _, x := range []struct {
		name          string
		total, active float64 // 1e9
	}{
		{"Nemotron-3-Nano-30B-A3B", 31.6, 3.6}, {"Nemotron-3-Super-120B-A12B", 120, 12}, {"Qwen3-Next-80B-A3B", 80, 3.9}, {"Mixtral-8x22B", 141, 39},
		{"Llama-3-8B", 8, 8}, {"Llama-3-70B", 70, 70}, {"Llama-3.1-405B", 405, 405}, {"GPT-OSS-20B", 21, 4.2},
	} {
		c := modelOf(t, x.name, false).Count(4096)
		if math.Abs(c.Total/1e9/x.total-1) > 0.03 || math.Abs(c.Active/1e9/x.active-1) > 0.12 {
			t.Errorf("%s has %.1f B parameters, %.2f active; its card says %g and %g", x.name, c.Total/1e9, c.Active/1e9, x.total, x.active)
		}
	}
	whole, half := modelOf(t, "671B", false), modelOf(t, "671B", false).cutTo(2)
	if half.Layers != 2 || half.DenseLayers != 1 || half.mainMoE() != 1 || half.Count(4096).Routed*58 != whole.Count(4096).Routed {
		t.Errorf("two layers of 671B are %+v", half)
	}
	if m := modelOf(t, "Llama-3-8B", false).cutTo(4); m.DenseLayers != 4 || m.mainMoE() != 0 {
		t.Errorf("four layers of a dense model are %+v", m.Config)
	}
	if m := modelOf(t, "Nemotron-3-Nano-30B-A3B", false).cutTo(26); m.Mamba.Layers != 12 || m.mainMoE() != 12 {
		t.Errorf("half of a hybrid has %d scans and %d layers with experts", m.Mamba.Layers, m.mainMoE())
	}
}
