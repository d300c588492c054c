package trainer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// A warm step of any precision leaves the Go heap alone but for what goes with the ranks' meetings,
// and nothing stays of a benchmark.
func TestBenchmark(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, p := range moe.Precisions() {
		cfg := tiny(t, func(c *config.Config) { c.Precision = p.Name })
		job, err := Prepare(cfg, 2, "", &reports{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := job.Benchmark(t.Context(), spmd.Goroutines{N: 2}, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Steps) != 3 || !(b.Loss > 0) || b.Tokens != cfg.Batch*cfg.Seq {
			t.Errorf("%s: %+v", p.Name, b)
		}
		if len(b.Activations) != 2 || slices.Min(b.Activations) <= 0 {
			t.Errorf("%s: activations of %v bytes", p.Name, b.Activations)
		}
		most := 300.0 // more under load
		if !strings.HasPrefix(p.Name, "bf16") && !strings.HasPrefix(p.Name, "fp32") && !strings.HasPrefix(p.Name, "mxfp8") &&
			p.Name != "mxint8" {
			most = 800 // formats without products of their own: decoded copies, and meetings about scales
		}
		if b.Objects >= most {
			t.Errorf("%s: %v objects on the heap a step", p.Name, b.Objects)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
