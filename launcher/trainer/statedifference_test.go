package trainer

import (
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/save"
)

// stateAfter trains a step and opens its checkpoint.
func stateAfter(t *testing.T, change func(*config.Config)) *checkpoint.Reader {
	t.Helper()
	cfg := tiny(t, change)
	cfg.Steps = 1
	train(t, cfg, 1, "")
	r, err := checkpoint.Open(filepath.Join(cfg.Out, "step-00000001"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// Moments are named before weights and weights before biases, unless all gradients differ by one
// factor.
func TestCompareStates(t *testing.T) {
	unclipped := func(c *config.Config) { c.Optimizer.ClipNorm = 0 }
	for name, c := range map[string]struct {
		base, change func(*config.Config)
		layer        string
		tensor       string // the beginning of its name
		tensors      int    // 0: all
	}{
		"norm":   {func(*config.Config) {}, func(c *config.Config) { c.Optimizer.ClipNorm = 0.01 }, "all layers", save.AllGradients, 0},
		"biases": {unclipped, func(c *config.Config) { unclipped(c); c.Model.BiasSpeed *= 2 }, "layer 1", "model.layers.1.mlp.gate.e_score_correction_bias", 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := stateAfter(t, c.base), stateAfter(t, c.change)
			var sums [2]save.StateSums
			for i, r := range []*checkpoint.Reader{a, b} {
				var err error
				if sums[i], err = save.ReadStateSums(r); err != nil {
					t.Fatal(err)
				}
			}
			names := sums[0].Differing(sums[1])
			d, err := save.CompareStates(a, b, names)
			if err != nil || !strings.HasPrefix(d.Layer, c.layer) || !strings.HasPrefix(d.Tensor, c.tensor) ||
				!(d.Distance > 0 && d.Distance <= 2) {
				t.Errorf("%+v, %v; want %s, %s", d, err, c.layer, c.tensor)
			}
			if d.Tensors != len(names) || c.tensors > 0 && d.Tensors != c.tensors {
				t.Errorf("%d tensors differ, want %d", d.Tensors, max(c.tensors, len(names)))
			}
		})
	}
}
