package moe

import (
	"math"
	"testing"
)

// DeepSeek-V3's constants: of 32 pairs the first 11 keep their frequency, those from 23 on have a
// fortieth of it, and between them the two are blended in proportion.
func TestYaRNFrequencies(t *testing.T) {
	freq := mustFlavor(t, "671B").Config.rotaryFrequencies()
	if len(freq) != 32 {
		t.Fatalf("%d frequencies, want 32", len(freq))
	}
	for i, got := range freq {
		plain := math.Pow(10000, -float64(i)/32)
		blend := min(max(float64(i-10)/13, 0), 1)
		if want := plain * (1 - blend + blend/40); math.Abs(got/want-1) > 1e-6 {
			t.Errorf("pair %d: %.8g, want %.8g", i, got, want)
		}
	}
}

func TestYaRNScales(t *testing.T) {
	for _, c := range []struct {
		name           string
		yarn           YaRN
		table, softmax float64 // softmax: times sqrt(192)
	}{
		{"off", YaRN{Factor: 1, MScale: 1, MScaleAllDim: 1}, 1, 1},
		{"equal", YaRN{Factor: 40, MScale: 1, MScaleAllDim: 1}, 1, 1.873854}, // (0.1·ln 40 + 1)²
		{"V2-Lite", YaRN{Factor: 40, MScale: 0.707, MScaleAllDim: 0.707}, 1, 1.589627},
		{"neither", YaRN{Factor: 40}, 1.368888, 1},
		{"tables only", YaRN{Factor: 40, MScale: 0.5}, 1.368888, 1},
		{"different", YaRN{Factor: 40, MScale: 0.707, MScaleAllDim: 1}, 1.260804 / 1.368888, 1.873854},
	} {
		cfg := with(mustFlavor(t, "671B").Config, func(cfg *Config) { cfg.YaRN = c.yarn })
		if got := c.yarn.tableScale(); math.Abs(got-c.table) > 1e-6 {
			t.Errorf("%s: tables are scaled by %.7f, want %.7f", c.name, got, c.table)
		}
		if got := float64(cfg.softmaxScale()) * math.Sqrt(192); math.Abs(got-c.softmax) > 2e-6 {
			t.Errorf("%s: scores are scaled by %.7f, want %.7f", c.name, got, c.softmax)
		}
	}
}
