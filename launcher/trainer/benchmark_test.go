package trainer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
)

// A warm step of any precision leaves the Go heap alone but for what goes with the ranks' meetings,
// and nothing stays of a benchmark.
func TestBenchmark(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, precision := range []string{"bf16", "nvfp4"} {
		cfg := tiny(t, func(c *config.Config) { c.Precision = precision })
		job, err := Prepare(cfg, 2, "", &reports{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := job.Benchmark(t.Context(), spmd.Goroutines{N: 2}, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Steps) != 3 || !(b.Loss > 0) || b.Tokens != cfg.Batch*cfg.Seq {
			t.Errorf("%s: %+v", precision, b)
		}
		if len(b.Activations) != 2 || slices.Min(b.Activations) <= 0 {
			t.Errorf("%s: activations of %v bytes", precision, b.Activations)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
