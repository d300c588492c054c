package trainer

import (
	"context"
	"fmt"
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
		if o, _ := sameBits(t, run, onOneHost(mesh.Default(2), mesh.Default(4))); o.evals[0] != last {
			t.Errorf("from %s: the first loss is %v, the source ended with %v", from, o.evals[0], last)
		}
	}
}

// Ranks of hosts with different Go installations do not start: each would train on its own text.
func TestDifferentBuiltinText(t *testing.T) {
	own := goTree(t, "// what people write about the code they write\n")
	cfg := tiny(t, nil)
	cfg.Data = nil
	var jobs [3]*Job
	for i, root := range []string{own, filepath.Join(own, "gone"), own} {
		t.Setenv("GOROOT", root)
		var err error
		if jobs[i], err = Prepare(cfg, 2, "", &reports{}); err != nil {
			t.Fatal(err)
		}
		defer jobs[i].Close()
	}
	if err := agreeOnHosts([2]*Job{jobs[0], jobs[2]}); err != nil {
		t.Error(err)
	}
	err := agreeOnHosts([2]*Job{jobs[0], jobs[1]})
	for _, want := range []string{
		fmt.Sprintf("the text is the Go sources in %s (go1.99, named by GOROOT) (SHA-256 ", filepath.Join(own, "src")), ") on rank 0 on host a, but built-in, spmoe's own sources",
		") on rank 1 on host b: install the same Go on all hosts, or give the same --data",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if got := jobs[1].corpus; !strings.HasPrefix(got.Builtin, "built-in") || got.Train < 4<<20 {
		t.Errorf("without Go, the text is %+v", got)
	}
}

func TestInitFromOther(t *testing.T) {
	t.Parallel()
	source := tiny(t, nil)
	train(t, source, 1, "")
	cfg := source
	cfg.InitFrom, cfg.Out, cfg.Model.Layers = source.Out, filepath.Join(t.TempDir(), "run"), 3
	if _, err := Prepare(cfg, 1, "", &reports{}); err == nil || !strings.Contains(err.Error(), "holds a model of") ||
		!strings.Contains(err.Error(), "step-00000004") {
		t.Errorf("error %v", err)
	}
	// A rank each opens the run for itself, which goes on between the two.
	cfg.Model.Layers = source.Model.Layers
	var jobs [2]*Job
	for i := range jobs {
		var err error
		if jobs[i], err = Prepare(cfg, 2, "", &reports{}); err != nil {
			t.Fatal(err)
		}
		defer jobs[i].Close()
		source.Steps++
		train(t, source, 1, source.Out)
	}
	if err := agreeOnHosts(jobs); err == nil ||
		!strings.Contains(err.Error(), "the first state is "+filepath.Join(source.Out, "step-00000004")) {
		t.Errorf("error %v", err)
	}
}
