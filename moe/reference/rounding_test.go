package reference

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRounding(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		format  Format
		x, want float64
	}{
		{BF16, 1 + 1.0/256, 1}, {BF16, 1 + 3.0/256, 1 + 4.0/256}, {BF16, -3.5e38, -inf}, {BF16, inf, inf}, {BF16, 1e-40, 0x1p-133},
		{FP16, 1 + 1.0/2048, 1}, {FP16, 1 + 3.0/2048, 1 + 4.0/2048}, {FP16, 65519, 65504}, {FP16, 65520, inf}, {FP16, 0x1p-25, 0}, {FP16, 0x1.8p-24, 0x1p-23},
		{FP32, 1 + 0x1p-24, 1}, {FP32, 1 + 0x1.8p-23, 1 + 0x1p-22}, {Exact, 0.1, 0.1},
	} {
		all := []float64{c.x}
		held := c.format.Holds(all)
		c.format.roundAll(all)
		if got := c.format.Round(c.x); got != c.want || all[0] != c.want || held != (c.x == c.want) {
			t.Errorf("format %d: %g is rounded to %g and %g, want %g; held: %v", c.format, c.x, got, all[0], c.want, held)
		}
	}
	if x := BF16.Round(math.NaN()); x == x {
		t.Errorf("NaN is rounded to %g", x)
	}
}

// A sigmoid near 1 has the error of code that takes its steps in FP32.
func TestSigmoidSteps(t *testing.T) {
	for _, x := range []float64{-3, 0.5, 9, 12, 14.5} {
		for format, want := range map[Format]float64{Exact: sigmoid(x), FP32: float64(1 / (1 + float32(math.Exp(-x)))), BF16: BF16.Round(float64(1 / (1 + float32(math.Exp(-x)))))} {
			tp := &tape{}
			if got := tp.sigmoid(tp.constant(1, 1, []float64{x}, format)).data[0]; got != want {
				t.Errorf("sigmoid(%g) in format %d is %.9g, want %.9g", x, format, got, want)
			}
		}
	}
}

// The ways of rounding move a module by what the format costs, and differ.
func TestFloors(t *testing.T) {
	g := openGolden(t, "deepseek_v3_tiny")
	core := g.module("model.layers.1.self_attn.core")
	for _, p := range core.Inputs {
		BF16.roundAll(g.values[p.Label()].Data)
	}
	out := core.Outputs[0].Name
	exact := g.run(core)[out].Data
	last := 0.0
	for _, r := range []Rounding{{Format: FP32}, {Format: BF16, Jitter: 1}, {Format: BF16, Way: KernelEnds}, {Format: BF16}} {
		g.edit = func(c *Call) { c.Rounding = r }
		d := distance(g.run(core)[out].Data, exact)
		if low, high := map[Format]float64{FP32: 1e-8, BF16: 5e-4}[r.Format], map[Format]float64{FP32: 1e-6, BF16: 1e-2}[r.Format]; d < low || d > high || d == last {
			t.Errorf("%+v costs %.2g, expected %.2g to %.2g and not %.2g", r, d, low, high, last)
		}
		last = d
	}
}

// A module on some of its tokens or sequences gives the rows that it gives on all.
func TestSelectedRows(t *testing.T) {
	for _, c := range []struct {
		family, path string
		lo, hi       int // rows of the result
	}{
		{"qwen3_moe_tiny", "model.layers.1.mlp.experts", 5, 9}, {"qwen3_moe_tiny", "model.layers.1.self_attn", 48, 96},
		{"deepseek_v4_tiny", "model.layers.1.self_attn", 46, 92}, {"deepseek_v4_tiny", "model.layers.1.self_attn.compressor.pool", 11, 22},
		{"deepseek_v4_tiny", "model.layers.1.self_attn.core", 46, 92}, {"deepseek_v4_tiny", "model.layers.0.mlp", 5, 9},
	} {
		g := openGolden(t, c.family)
		m := g.module(c.path)
		all := g.run(m)[m.Outputs[0].Name]
		g.edit = func(c *Call) { c.Tokens, c.Sequences = span(5, 9), []int{1} }
		some, width := g.run(m)[m.Outputs[0].Name].Data, all.Dims[len(all.Dims)-1]
		if d := distance(some, all.Data[c.lo*width:c.hi*width]); len(some) != (c.hi-c.lo)*width || d > 1e-12 {
			t.Errorf("%s: %d elements, off by %.2g", c.path, len(some), d)
		}
	}
}

func (g *golden) module(path string) *Module {
	all := g.config.Modules()
	return all[slices.IndexFunc(all, func(m *Module) bool { return m.Path == path })]
}

func TestWrongInputs(t *testing.T) {
	g := openGolden(t, "deepseek_v3_tiny")
	for name, edit := range map[string]func(given map[string]Tensor, c *Call){
		"expected 64 for each": func(given map[string]Tensor, c *Call) {
			given["model.layers.1.mlp.experts.input"] = Tensor{Data: make([]float64, 96*32)}
		},
		"0 elements: expected": func(given map[string]Tensor, c *Call) { delete(given, "model.layers.1.mlp.experts.input.2") },
		"expected 0 to 15": func(given map[string]Tensor, c *Call) {
			given["model.layers.1.mlp.gate.indices"] = Tensor{Dims: []int{96, 4}, Data: slices.Repeat([]float64{16}, 96*4)}
		},
		"give the router": func(given map[string]Tensor, c *Call) { delete(given, "model.layers.1.mlp.gate.indices") },
		"expected 4 for each tok": func(given map[string]Tensor, c *Call) {
			given["model.layers.1.mlp.gate.indices"] = Tensor{Data: make([]float64, 9)}
		},
		"or numbers of experts": func(given map[string]Tensor, c *Call) { c.Mistake = "experts_swapped:a" },
	} {
		m := g.module("model.layers.1.mlp.experts")
		given := maps.Clone(g.values)
		call := Call{Batch: g.batch, Backward: true, Given: known(given), Param: g.weight}
		edit(given, &call)
		call.Given = known(given)
		if _, err := m.Run(call); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestWrongConfigs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(goldens, "deepseek_v3_tiny", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for old, c := range map[string][2]string{
		`"model_type": "deepseek_v3"`: {`"model_type": "gpt2"`, "expected deepseek_v2"},
		`"hidden_size": 64`:           {`"hidden_size": "64"`, "hidden_size"},
		`"vocab_size": 512`:           {`"vocab_size": 0`, "vocab_size is 0"},
		`"n_group": 4`:                {`"n_group": 3`, "n_group 3"},
		`"hidden_act": "silu"`:        {`"hidden_act": "gelu"`, "expected silu"},
		`"rope_type": "default"`:      {`"rope_type": "longrope"`, "expected default or yarn"},
		`"kv_lora_rank": 32`:          {`"kv_lora_rank": null`, "kv_lora_rank is 0"},
	} {
		if !strings.Contains(string(data), old) {
			t.Errorf("config.json lacks %s", old)
		}
		if _, err := ReadConfig([]byte(strings.Replace(string(data), old, c[0], 1))); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: %v", c[0], err)
		}
	}
}
