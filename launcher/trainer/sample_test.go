package trainer

import (
	"math"
	"testing"

	"spmoe/launcher/trainer/config"
)

// A run whose weights have been thrown so far that the model gives no numbers ends like any other:
// without a sample.
func TestSampleOfBrokenModel(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.SampleTokens, c.Optimizer.LR = 1, 12, 1e300 })
	for _, ranks := range []int{1, 2} {
		got := train(t, cfg, ranks, "")
		if d := got.done[0]; d.Sample != "" || d.Step != 1 || !math.IsNaN(d.HeldOut.Last) && !math.IsInf(d.HeldOut.Last, 0) {
			t.Errorf("%d ranks: the end says %+v", ranks, d)
		}
		cfg.Out = t.TempDir()
	}
}
