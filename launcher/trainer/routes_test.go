package trainer

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/routes"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
)

// routesIn returns the routes that a run has recorded.
func routesIn(t *testing.T, cfg config.Config) (all []routes.Step) {
	t.Helper()
	r, err := routes.Open(filepath.Join(cfg.Out, RoutesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		s, err := r.Next()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, routes.Step{Step: s.Step, Experts: slices.Clone(s.Experts), Weights: slices.Clone(s.Weights)})
	}
}

func sameSteps(a, b []routes.Step) bool {
	return slices.EqualFunc(a, b, func(a, b routes.Step) bool {
		return a.Step == b.Step && slices.Equal(a.Experts, b.Experts) && slices.Equal(a.Weights, b.Weights)
	})
}

// recording is a pipelineRun that records its routes.
func recording(t *testing.T, precision string) config.Config {
	cfg := pipelineRun(t, precision)
	cfg.RecordRoutes = true
	return cfg
}

// A run has the same routes in every layout, and has its own bits when it replays them.
func TestReplayOfOwnRoutes(t *testing.T) {
	first := recording(t, "bf16")
	want, _ := outcomeOn(t, first, []int{1}, "", nil)
	made := routesIn(t, first)
	if len(made) != first.Steps || sameSteps(made[:1], made[1:]) {
		t.Fatalf("%d steps are recorded, or they are all the same", len(made))
	}
	for i, l := range []mesh.Layout{
		mesh.Default(1), mesh.Default(4),
		{World: 4, PP: 1, DPReplicate: 2, DPShard: 2, EP: 2},
		{World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 1},
	} {
		cfg := inStages(recording(t, "bf16"), "ZBVZeroBubble", l)
		cfg.ReplayRoutes, cfg.ReplayWeights = filepath.Join(first.Out, RoutesFile), i%2 == 0
		cfg.Recompute = []string{"full", "selective", "none"}[i%3]
		what := fmt.Sprintf("%v, recompute %s, weights %t", l, cfg.Recompute, cfg.ReplayWeights)
		placed{layout: l}.outcome(t, cfg, "").equals(t, what, want)
		if !sameSteps(routesIn(t, cfg), made) {
			t.Errorf("%s: other routes than those that were replayed", what)
		}
	}
}

// A run that is resumed goes on recording where its checkpoint is, and reads the routes of the
// steps to come.
func TestRoutesResume(t *testing.T) {
	whole := recording(t, "bf16")
	whole.Steps, whole.SaveEvery, whole.Keep = 3, 1, 9
	want, _ := outcomeOn(t, whole, []int{1}, "", nil)
	made := routesIn(t, whole)
	file := filepath.Join(whole.Out, RoutesFile)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content[:len(content)-100], 0o666); err != nil { // in step 3
		t.Fatal(err)
	}
	replayed := filepath.Join(t.TempDir(), "replayed.arrow")
	if err := os.WriteFile(replayed, content, 0o666); err != nil {
		t.Fatal(err)
	}
	whole.ReplayRoutes = replayed
	got, _ := outcomeOn(t, whole, []int{1}, whole.Out, nil)
	if !sameSteps(routesIn(t, whole), made) || got.state != want.state {
		t.Error("the resumed run has other routes or another state")
	}
}

func TestRoutesThatDoNotFit(t *testing.T) {
	cfg := recording(t, "bf16")
	cfg.Steps = 1
	train(t, cfg, 1, "")
	file := filepath.Join(cfg.Out, RoutesFile)
	for want, change := range map[string]func(*config.Config){
		"it has no routes":                          nil,
		"seed 1, but this one has 2":                func(c *config.Config) { c.Seed = 2 },
		"experts per token 2, but":                  func(c *config.Config) { c.Model.TopK = 1 },
		"replay_weights needs replay_routes":        func(c *config.Config) { c.ReplayRoutes, c.ReplayWeights = "", true },
		"end after step 1: they do not have step 2": func(c *config.Config) { c.Steps = 2 },
	} {
		other := recording(t, "bf16")
		other.Steps, other.ReplayRoutes = 1, file
		if change == nil {
			other.ReplayRoutes = other.Data[0]
			change = func(*config.Config) {}
			want = "routes " + other.Data[0]
		}
		change(&other)
		job, err := Prepare(other, 1, "", &reports{})
		if err == nil {
			err = job.Run(t.Context(), spmd.Goroutines{N: 1})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
