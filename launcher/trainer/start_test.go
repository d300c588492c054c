package trainer

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/weights"
)

// A run that starts from the weights of another begins with the loss that the other has ended with,
// on any number of ranks; the routers' biases are taken too. From there all make the same steps.
func TestInitFrom(t *testing.T) {
	t.Parallel()
	change := func(c *config.Config) {
		c.Steps, c.Seq, c.EvalSequences, c.Model.Experts, c.Model.MTPLayers, c.Model.BiasSpeed = 3, 96, 8, 8, 1, 0.02
	}
	source := tiny(t, change)
	ended := train(t, source, 2, "")
	last := ended.evals[len(ended.evals)-1].Loss
	_, want := savedProgress(t, source, 3)
	exported := filepath.Join(t.TempDir(), "exported")
	s, err := weights.Open(source.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Convert(t.Context(), exported, weights.Options{FP32: true}); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{source.Out, filepath.Join(source.Out, "step-00000003"), exported} {
		run := func() config.Config {
			cfg := source
			cfg.Seed, cfg.InitFrom, cfg.Out = 77, from, filepath.Join(t.TempDir(), "run")
			return cfg
		}
		started := run()
		onRanks(t, started, 2, "", func(r *rank) error { return r.checkpoints.SaveLast(context.Background()) })
		_, got := savedProgress(t, started, 0)
		for name, w := range want {
			if strings.HasPrefix(name, weights.MasterPrefix) || strings.HasPrefix(name, weights.BiasPrefix) {
				if !slices.Equal(got[name], w) {
					t.Errorf("from %s: %s differs", from, name)
				}
			} else if slices.ContainsFunc(got[name], func(x float32) bool { return x != 0 }) {
				t.Errorf("from %s: %s is not zero", from, name)
			}
		}
		if o := sameBits(t, run, onOneHost(mesh.Default(2), mesh.Default(4))); o.evals[0] != last {
			t.Errorf("from %s: the first loss is %v, the source ended with %v", from, o.evals[0], last)
		}
	}
}
