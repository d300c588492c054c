package main

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"spmoe/bench/ratios"
	"spmoe/launcher/measuring"
	"spmoe/launcher/trainer/config"
)

// routed trains and returns what was measured.
func routed(t *testing.T, ranks string, more ...string) (cfg config.Config, f ratios.File) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	args := tiny(text(t), append([]string{"-np", ranks, "--record-ratios", "--out", out}, more...)...)
	succeed(t, args...)
	saved, err := os.ReadFile(filepath.Join(out, "config.toml"))
	if err == nil {
		err = toml.Unmarshal(saved, &cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	if f, err = measuring.OpenRatios(filepath.Join(out, ratios.Name)); err != nil {
		t.Fatal(err)
	}
	return cfg, f
}

// The ratios of a run count every choice of every token once, and do not depend on the number of
// ranks. In a pipeline, all layers are counted, and tokens stay among the ranks of a stage.
func TestRatios(t *testing.T) {
	shape := strings.Fields("--set model.layers=4 --batch 8 --steps 2")
	cfg, one := routed(t, "1", append(shape, "--micro-batch", "2")...)
	_, staged := routed(t, "4", append(shape, "--micro-batch", "1", "--pp", "2")...)
	want := int64(cfg.Steps * cfg.Batch * cfg.Seq * cfg.Model.TopK)
	for _, f := range []ratios.File{one, staged} {
		if len(f.Layers) != 3 || f.Steps != cfg.Steps || f.Model.Experts != cfg.Model.Experts {
			t.Fatalf("%+v", f)
		}
		for _, l := range f.Layers {
			sum := int64(0)
			for _, n := range l.Rows {
				sum += n
			}
			if sum != want {
				t.Errorf("layer %d has %d rows, want %d", l.Layer, sum, want)
			}
			for _, p := range l.Places {
				if p.Distinct < 1 || p.Imbalance < 1 {
					t.Errorf("layer %d: %+v", l.Layer, p)
				}
			}
		}
		standard, dedup := f.Traffic.Bytes()
		if standard != want*int64(len(f.Layers))*int64(2*cfg.Model.Dim) || dedup > standard || dedup < standard/int64(cfg.Model.TopK) {
			t.Errorf("%d bytes, %d without duplicates", standard, dedup)
		}
		total := 0.0
		for _, share := range f.Phases {
			total += share
		}
		if math.Abs(total-1) > 1e-6 || f.Density.Causal != float64(cfg.Seq+1)/float64(2*cfg.Seq) || f.Density.Document > f.Density.Causal {
			t.Errorf("phases add up to %g, density %+v", total, f.Density)
		}
	}
	if !reflect.DeepEqual(staged.Layers, one.Layers) || staged.Density != one.Density {
		t.Errorf("%+v, want %+v", staged.Layers, one.Layers)
	}
	for from, sent := range staged.Traffic.Rows {
		for to, rows := range sent {
			if (rows > 0) != (from/2 == to/2) {
				t.Errorf("%d rows from rank %d to %d", rows, from, to)
			}
		}
	}
}
