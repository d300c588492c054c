package convergence

import "testing"

// A flavor whose own run is long for its model keeps its steps. No default rate is above the one at
// which pairs scatter little.
func TestDefaultSteps(t *testing.T) {
	for flavor, want := range map[string]struct {
		steps, warmup int
		rate          float64
	}{"300K": {1500, 75, 8e-3}, "1M": {2400, 120, 2e-3}, "3M": {3300, 165, 2e-3}, "wide": {1500, 75, 1e-3}, "debug": {1500, 75, 1e-3}, "small": {1500, 75, 1e-3}, "3B": {1500, 75, 6.2e-4}} {
		cfg, err := Default(flavor, 0)
		if err != nil || cfg.Steps != want.steps || cfg.Optimizer.LR != want.rate || cfg.Optimizer.Warmup != want.warmup || cfg.EvalSequences < evalSequences {
			t.Errorf("%s: %d steps, rate %g, warm-up %d, %d validation sequences; %v", flavor, cfg.Steps, cfg.Optimizer.LR, cfg.Optimizer.Warmup, cfg.EvalSequences, err)
		}
		if cfg, _ = Default(flavor, 77); cfg.Steps != 77 {
			t.Errorf("%s: %d steps, want those that are given", flavor, cfg.Steps)
		}
	}
}
