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
	"spmoe/moe"
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

// A run with indexers that starts from a model without any takes all other weights. The indexers
// begin as those of a run from the seed. The stage that trains them leaves all else as it is, with
// the routers' biases.
func TestInitIndexersFrom(t *testing.T) {
	t.Parallel()
	dense := tiny(t, func(c *config.Config) { c.Steps, c.Model.QRank, c.Model.BiasSpeed = 1, 16, 0.02 })
	train(t, dense, 1, "")
	cfg := dense
	cfg.Steps, cfg.Seed, cfg.InitFrom, cfg.Out = 3, 77, dense.Out, filepath.Join(t.TempDir(), "run")
	m := &cfg.Model
	m.IndexHeads, m.IndexDim, m.IndexTopK, m.IndexRope, m.IndexStage, m.IndexWeight = 3, 16, 8, "half", "warmup", 1
	fresh := cfg
	fresh.InitFrom, fresh.Out = "", filepath.Join(t.TempDir(), "fresh")
	for _, c := range []config.Config{cfg, fresh} {
		onRanks(t, c, 2, "", func(r *rank) error { return r.checkpoints.SaveLast(context.Background()) })
	}
	_, source := savedProgress(t, dense, 1)
	_, drawn := savedProgress(t, fresh, 0)
	_, started := savedProgress(t, cfg, 0)
	trained := cfg
	trained.Out = filepath.Join(t.TempDir(), "trained")
	train(t, trained, 2, "")
	_, ended := savedProgress(t, trained, 3) // an even number of moves of a bias may cancel
	for name, x := range started {
		want := source[name]
		if moe.IsIndexer(name) {
			want = drawn[name]
		}
		state := !strings.HasPrefix(name, weights.MasterPrefix) && !strings.HasPrefix(name, weights.BiasPrefix)
		if !state && !slices.Equal(x, want) {
			t.Errorf("%s begins with other values", name)
		}
		if trained := !slices.Equal(ended[name], x); trained != moe.IsIndexer(name) {
			t.Errorf("%s has trained: %t", name, trained)
		}
	}
}
