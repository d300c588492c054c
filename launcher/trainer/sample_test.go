package trainer

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
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

// Samples during a run change no bit of it, in any recipe and layout. They are reported and
// recorded, and a run that is resumed at the step of a sample records it once.
func TestSamplesChangeNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		precision string
		ranks, pp int
	}{{"bf16", 1, 1}, {"mxfp8", 2, 1}, {"nvfp4", 1, 1}, {"bf16", 2, 2}} {
		t.Run(fmt.Sprintf("%s on %d, pp %d", c.precision, c.ranks, c.pp), func(t *testing.T) {
			plain := tiny(t, func(cfg *config.Config) {
				cfg.Steps, cfg.Seq, cfg.Batch, cfg.EvalSequences, cfg.Precision, cfg.PP, cfg.SaveEvery, cfg.Model.BiasSpeed = 5, 16, 4, 2, c.precision, c.pp, 2, 0.01
			})
			sampled := plain
			sampled.Out, sampled.SampleEvery, sampled.SampleTokens = t.TempDir(), 2, 5
			train(t, plain, c.ranks, "")
			got := train(t, sampled, c.ranks, "")
			sameState(t, "after samples", sampled, plain, 5)
			if len(got.samples) != 2 || got.samples[0].Step != 2 || got.samples[1].Step != 4 || got.samples[1].Prompt != sampled.SamplePrompt {
				t.Errorf("samples %+v", got.samples)
			}
			log := readRecord(t, sampled) // JSON has valid characters only
			if n := len(log.Samples); n != 3 || log.Samples[0].Text != strings.ToValidUTF8(got.samples[0].Text, "\ufffd") ||
				log.Samples[2].Text != strings.ToValidUTF8(got.done[0].Sample, "\ufffd") {
				t.Errorf("recorded are %d, the first %+q, want %+q; the last is %+q", n, log.Samples[0].Text, got.samples[0].Text, got.done[0].Sample)
			}
			train(t, sampled, c.ranks, filepath.Join(sampled.Out, "step-00000004"))
			if again := readRecord(t, sampled); !reflect.DeepEqual(again.Timeless().Samples, log.Samples) {
				t.Errorf("resumed: %+v, want %+v", again.Samples, log.Samples)
			}
		})
	}
}
