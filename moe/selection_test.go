package moe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"spmoe/mx"
	"spmoe/tensor"
)

// A selection has the layers that it says, of a model of 8, and is written as it is read.
func TestSelection(t *testing.T) {
	for text, want := range map[string]string{
		"experts": "012345678", "0-3": "0123", "2": "2", "first 2": "01", "last 1": "78", "last 0": "", "last 15 %": "678", "first 100 %": "01234567",
		"experts, last 12.5 %": "78", "experts, 7-9": "78", "attention": "",
	} {
		s, err := ParseSelection(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := ""
		for layer := range 9 {
			if s.has(Routed, layer, 8) {
				got += fmt.Sprint(layer)
			}
		}
		if got != want || s.String() != text {
			t.Errorf("%q is written as %q and has layers %q, want %q", text, s, got, want)
		}
	}
	if s, err := ParseSelection(" 4 - 6 , dense"); err != nil || s.String() != "dense, 4-6" || s.has(Shared, 5, 8) || !s.has(Dense, 5, 8) {
		t.Errorf("%q, %v", s, err)
	}
	for text, want := range map[string]string{
		"": "selects no layers", "norms": "selects no layers", "-3": "selects no layers", "last": "selects no layers", "3-1": "ends before it begins",
		"dense, shared": "selects twice", "0, 1": "selects twice", "first 1.5": "no whole number", "last 101 %": "more than all", "1, ": "selects no layers",
	} {
		if _, err := ParseSelection(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "give a kind (attention, dense") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// selected returns a rule for layers.
func selected(text string, r *Recipe) LayerRecipe {
	s, err := ParseSelection(text)
	if err != nil {
		panic(err)
	}
	return LayerRecipe{s, r}
}

// Each linear layer has the recipe of the last rule that selects it.
func TestLayerRecipes(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.Layers, c.DenseLayers = 3, 1 })
	p := Precision{Name: "some", DType: tensor.BF16, Experts: inMXFP8, Layers: []LayerRecipe{
		selected("attention, 0-1", uniform(cast(mx.INT8), cast(mx.INT8))), selected("dense", inMXFP8), selected("last 1", nil),
	}}
	m, got := aloneIn(t, cfg, p), map[string]bool{}
	m.model.ObserveQuantized(func(q Quantized) {
		part, _, _ := strings.Cut(q.Linear, ".")
		got[fmt.Sprintf("%d %s %v", q.Layer, part, q.Format)] = true
	})
	if err := m.trainOnce(); err != nil {
		t.Fatal(err)
	}
	want := []string{"0 mlp e4m3", "0 self_attn int8", "1 experts e4m3", "1 self_attn int8"}
	if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
		t.Errorf("quantized are %q, want %q", have, want)
	}
	if err := p.CheckLayers(cfg); err != nil {
		t.Error(err)
	}
	for text, c := range map[string]Config{"0-4": cfg, "shared": with(cfg, func(c *Config) { c.SharedExperts = 0 }), "experts, 0": cfg, "first 0": cfg} {
		p.Layers = []LayerRecipe{selected(text, nil)}
		if err := p.CheckLayers(c); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("select = %q: the model has layers 0 to 3, 1 of them dense", text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
