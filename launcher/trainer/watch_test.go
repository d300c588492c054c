package trainer

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
)

// What only watches a run changes no bit of it: profiles, records, samples, and the number
// of threads.
func TestProfileChangesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config.Config){
		"mxfp8":  func(c *config.Config) { c.Precision = "mxfp8" },
		"stages": func(c *config.Config) { c.PP = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			plain := tiny(t, func(c *config.Config) {
				c.Steps, c.SaveEvery, c.Model.BiasSpeed, c.Threads = 5, 2, 0.01, 1
				// Large enough for kernels to share their work out.
				c.Seq, c.Batch, c.Model.Dim, c.Model.DenseInter = 64, 16, 128, 256
				change(c)
			})
			train(t, plain, 2, "")
			watched := plain
			watched.Out, watched.RecordEvery, watched.SampleEvery, watched.SampleTokens, watched.Threads = t.TempDir(), 2, 2, 5, 3
			got := &reports{}
			job, err := Prepare(watched, 2, "", got)
			if err != nil {
				t.Fatal(err)
			}
			job.Profile = true
			if err := job.Run(t.Context(), spmd.Goroutines{N: 2}); err != nil {
				t.Fatal(err)
			}
			sameState(t, "watched", watched, plain, 5)
			log, without := readRecord(t, watched), readRecord(t, plain)
			for i, s := range without.Timeless().Steps {
				if w := log.Timeless().Steps[i]; !reflect.DeepEqual(w, s) {
					t.Errorf("step %+v, want %+v", w, s)
				}
			}
			// Loads of the first step cost next to nothing and are recorded anyway.
			if len(got.prof) != 1 || len(without.Quantized) != 0 || len(without.Loads) == 0 || !reflect.DeepEqual(without.Loads, log.Loads[:len(without.Loads)]) {
				t.Errorf("%d profiles, recorded unasked are %d operands and %+v", len(got.prof), len(without.Quantized), without.Loads)
			}
			if len(got.samples) != 2 || got.samples[0].Step != 2 || got.samples[1].Step != 4 || got.samples[1].Prompt != watched.SamplePrompt {
				t.Errorf("samples %+v", got.samples)
			}
			valid := func(text string) string { return strings.ToValidUTF8(text, "\ufffd") } // as in JSON
			if n := len(log.Samples); n != 3 || log.Samples[0].Text != valid(got.samples[0].Text) || log.Samples[2].Text != valid(got.done[0].Sample) {
				t.Errorf("recorded are %d samples: %s", n, fmt.Sprintf("%+v", log.Samples))
			}
		})
	}
}
