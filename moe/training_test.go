package moe

import (
	"math"
	"testing"
)

// The published peak rates of DeepSeek-V2-Lite, V2 and V3, and the rates of the other flavors.
func TestTrainingRates(t *testing.T) {
	for name, want := range map[string]float64{
		"debug": 3e-3, "small": 1e-3, "16B": 4.2e-4, "236B": 2.4e-4, "671B": 2.2e-4,
	} {
		f, err := FindFlavor(name)
		if err != nil {
			t.Fatal(err)
		}
		if f.Training.LR != want {
			t.Errorf("%s: learning rate %g, want %g", name, f.Training.LR, want)
		}
	}
	small, large := mustFlavor(t, "small"), mustFlavor(t, "16B")
	slope := math.Log(large.Training.LR/small.Training.LR) / math.Log(active(large)/active(small))
	for _, name := range []string{"500M", "3B"} {
		f := mustFlavor(t, name)
		want := small.Training.LR * math.Pow(active(f)/active(small), slope)
		if math.Abs(f.Training.LR/want-1) > 0.01 {
			t.Errorf("%s: learning rate %g, the line through small and 16B gives %.3g", name, f.Training.LR, want)
		}
	}
}

func mustFlavor(t *testing.T, name string) Flavor {
	t.Helper()
	f, err := FindFlavor(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func active(f Flavor) float64 { return float64(f.Config.Count().Active) }

// Every flavor brings settings that its model can train with.
func TestTrainingOfFlavors(t *testing.T) {
	for _, f := range Flavors() {
		s := f.Training
		if s.Warmup < 1 || s.Warmup > s.Steps/10 {
			t.Errorf("%s: a warm-up of %d of %d steps, want at most a tenth", f.Name, s.Warmup, s.Steps)
		}
		if s.Seq < 1 || s.Seq > f.Config.MaxPositions {
			t.Errorf("%s: sequences of %d tokens, the model has %d positions", f.Name, s.Seq, f.Config.MaxPositions)
		}
		if s.Batch < 16 || s.Batch%16 != 0 {
			t.Errorf("%s: a batch of %d, want a multiple of 16", f.Name, s.Batch)
		}
		if y := f.Config.YaRN; y.Enabled() && s.Seq > y.OriginalPositions {
			t.Errorf("%s: sequences of %d tokens, beyond the %d before the extension", f.Name, s.Seq, y.OriginalPositions)
		}
	}
}

// A model that is no flavor trains like the flavor of its size.
func TestFlavorLike(t *testing.T) {
	for _, f := range Flavors() {
		if f.SliceOf != "" {
			continue
		}
		if got := FlavorLike(f.Config).Name; got != f.Name {
			t.Errorf("%s is like %s", f.Name, got)
		}
	}
	c := mustFlavor(t, "16B").Config
	c.Layers -= 3
	if got := FlavorLike(c).Name; got != "16B" {
		t.Errorf("a 16B of fewer layers is like %s", got)
	}
	if got := FlavorLike(tiny()).Name; got != "300K" {
		t.Errorf("a tiny model is like %s", got)
	}
}
