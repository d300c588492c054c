package moe

import (
	"slices"
	"strings"
	"testing"
)

func TestParseStages(t *testing.T) {
	of := func(layers, mtp int) Config {
		return with(tiny(), func(c *Config) { c.Layers, c.DenseLayers, c.MTPLayers = layers, 1, mtp })
	}
	for _, c := range []struct {
		cfg  Config
		text string
		want []Stage
	}{
		{of(2, 0), "EttL", []Stage{{0, 2, true, false, true}}},
		{of(2, 0), "E|t|t|L", []Stage{{Embed: true}, {End: 1}, {First: 1, End: 2}, {First: 2, End: 2, Predict: true}}},
		{of(5, 1), "Et*2|(t|)*2, tmL", []Stage{{End: 2, Embed: true}, {First: 2, End: 3}, {First: 3, End: 4}, {4, 5, false, true, true}}},
		{of(3, 1), "Et|t|tm|L", []Stage{{End: 1, Embed: true}, {First: 1, End: 2}, {First: 2, End: 3, MTP: true}, {First: 3, End: 3, Predict: true}}},
		{of(2, 1), "Ettm|L", []Stage{{End: 2, Embed: true, MTP: true}, {First: 2, End: 2, Predict: true}}},
		{of(8, 0), "E(t(t|))*2,((t)*2|)*2L", []Stage{{End: 2, Embed: true}, {First: 2, End: 4}, {First: 4, End: 6}, {First: 6, End: 8}, {First: 8, End: 8, Predict: true}}},
	} {
		got, err := c.cfg.ParseStages(c.text)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.text, got, err, c.want)
		}
		for _, s := range got {
			if err := s.validate(c.cfg); err != nil {
				t.Errorf("%s: %v", c.text, err)
			}
		}
	}
	v3, err := of(61, 1).ParseStages("Et*3|(tt|)*29,m|L")
	if err != nil || len(v3) != 32 || v3[30] != (Stage{First: 61, End: 61, MTP: true}) || v3[31] != (Stage{First: 61, End: 61, Predict: true}) {
		t.Errorf("DeepSeek-V3: %+v, %v", v3, err)
	}
	for text, want := range map[string]string{
		"":                   "0 t for a model of 61",
		"Et*3|(tt|)*29,m|":   "without L",
		"Et*61m|mL":          `character 8, 'm': the model has 1 MTP modules`,
		"Et*60m|tL":          `character 8, 't': only L comes after m`,
		"Et*61m||L":          `character 8, '|': the stage before it is empty`,
		"Et*3|(tt|)*29L":     "the model has an MTP module",
		"t*61mL":             `character 1, 't': begin with E`,
		"Et*62mL":            `character 2, 't': the model has 61 layers`,
		"Et*60mL":            "60 t for a model of 61 layers",
		"Et*61m":             "without L",
		"Et*61mLt":           `character 8, 't': nothing comes after L`,
		"EEt*61mL":           `character 2, 'E': begin with E, once`,
		"Et*61mmL":           `character 7, 'm': the model has 1 MTP modules`,
		"Et*60mtL":           `character 7, 't': only L comes after m`,
		"Et*3||t*58mL":       `character 6, '|': the stage before it is empty`,
		"Et*61mL|":           `character 8, '|': nothing comes after L`,
		"E(t*61mL":           `character 2, '(' is not closed`,
		"Et*61)mL":           `character 6, ')' closes nothing`,
		"Et*61xmL":           `character 6, 'x': give E, t, m, L`,
		"Et*mL":              `character 3, '*': give a number`,
		"Et*0mL":             `character 3, '*': give a number`,
		"E(((t*60)*60)*60)L": "repeats to more than",
	} {
		if _, err := of(61, 1).ParseStages(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseStages(f *testing.F) {
	for _, text := range []string{"Et*3|(tt|)*29,mL", "Et*3|m|L", "E(t(t|))*2L", "((((", "t*99999999999999999999", "E,t |L"} {
		f.Add(text)
	}
	cfg := with(tiny(), func(c *Config) { c.Layers, c.DenseLayers, c.MTPLayers = 3, 1, 1 })
	f.Fuzz(func(t *testing.T, text string) {
		stages, err := cfg.ParseStages(text)
		if err != nil {
			return
		}
		next, modules := 0, 0
		for i, s := range stages {
			if s.MTP {
				modules++
			}
			if err := s.validate(cfg); err != nil || s.First != next || s.Embed != (i == 0) || s.Predict != (i == len(stages)-1) {
				t.Fatalf("%q: stage %d is %+v, %v", text, i, s, err)
			}
			next = s.End
		}
		if next != cfg.Layers || modules != cfg.MTPLayers {
			t.Fatalf("%q: stages end with layer %d and have %d MTP modules", text, next, modules)
		}
	})
}
