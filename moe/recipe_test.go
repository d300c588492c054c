package moe

import (
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
)

// Recipes of tests.
var (
	inMXFP8     = uniform(cast(mx.E4M3), cast(mx.E4M3))
	inMXINT8    = uniform(cast(mx.INT8), cast(mx.INT8))
	inMXFP4     = uniform(cast(mx.E2M1), cast(mx.E2M1))
	highWgrad   = &Recipe{Forward: inMXFP8.Forward, Dgrad: inMXFP8.Dgrad}
	inNVFP4     = tiled(mx.NVFP4, mx.NVFP4Tile)
	inFP8Blocks = tiled(mx.FP8Row, mx.FP8Tile)
)

// tiled is a recipe of rows for inputs and gradients, and of squares for weights.
func tiled(row, square mx.Format) *Recipe {
	r, s := cast(row), cast(square)
	return &Recipe{Forward: Product{r, s}, Dgrad: Product{r, s}, Wgrad: Product{r, r}}
}

// aloneIn builds a model of one rank, whose weights are not quantized yet.
func aloneIn(t *testing.T, cfg Config, p Precision) *member {
	t.Helper()
	c := collective.NewWorld(1).Comm(0)
	model, err := New(cfg, p, 16, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	spread(model)
	return &member{c, tensor.NewExec(), model}
}

// TestPlainLayers: the first and last layers stay as they are, and the module behind the last.
func TestPlainLayers(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.Layers = 4 })
	for _, c := range []struct {
		first, last int
		want        map[int]bool // quantized layers; 4 is the MTP module
	}{
		{0, 0, map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}},
		{1, 0, map[int]bool{1: true, 2: true, 3: true, 4: true}},
		{0, 2, map[int]bool{0: true, 1: true}},
		{3, 2, map[int]bool{}},
	} {
		p := Precision{Name: "some", DType: tensor.BF16, Linears: inMXFP8, Experts: inMXFP8, PlainFirst: c.first, PlainLast: c.last}
		m, got := aloneIn(t, cfg, p), map[int]bool{}
		m.model.ObserveQuantized(func(q Quantized) { got[q.Layer] = true })
		if err := m.trainOnce(); err != nil {
			t.Fatal(err)
		}
		for l := range cfg.Layers + 1 {
			if got[l] != c.want[l] {
				t.Errorf("%d first and %d last layers plain: layer %d quantized %v", c.first, c.last, l, got[l])
			}
		}
	}
}

// TestRefusedRecipes: what no layer can multiply by is refused by name.
func TestRefusedRecipes(t *testing.T) {
	transformed := mx.NVFP4
	transformed.Hadamard = 16
	for want, p := range map[string]Precision{
		"forward multiplies e4m3 and not quantized": {Linears: &Recipe{Forward: Product{Left: cast(mx.E4M3)}}},
		"wgrad multiplies not quantized and e4m3":   {Experts: &Recipe{Wgrad: Product{Right: cast(mx.E4M3)}}},
		"nvfp4-16x16 has blocks of 16 rows":         {Linears: uniform(cast(mx.NVFP4Tile), cast(mx.NVFP4))},
		"transform both operands":                   {Linears: &Recipe{Wgrad: Product{cast(transformed), cast(mx.NVFP4)}}},
		"a share of 2 of the layers":                {PlainTail: 2},
		"-1 layers at the beginning":                {PlainFirst: -1},
	} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
