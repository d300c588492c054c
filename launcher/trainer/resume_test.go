package trainer

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"spmoe/launcher/trainer/config"
)

// A run that is resumed by a new job after any of its steps is the run that was left alone: every
// loss, and the state at the end, bit for bit.
func TestResumeAtEveryStep(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) {
		c.Steps, c.Seq, c.Batch, c.EvalSequences, c.SaveEvery, c.Keep, c.Model.BiasSpeed = 6, 16, 4, 2, 1, 30, 0.01
	})
	straight := onRanks(t, cfg, 2, "", run)
	for k := 1; k <= cfg.Steps; k++ {
		again := cfg
		again.Out, again.SaveEvery = filepath.Join(t.TempDir(), "run"), 0
		got := onRanks(t, again, 2, filepath.Join(cfg.Out, fmt.Sprintf("step-%08d", k)), func(r *rank) error {
			if k == cfg.Steps { // where a run has nothing left to save
				return r.checkpoints.SaveLast(context.Background())
			}
			return run(r)
		})
		if len(got.steps) != cfg.Steps-k {
			t.Errorf("resumed at step %d: %d steps made", k, len(got.steps))
		}
		for i, s := range got.steps {
			if w := straight.steps[k+i]; s.Step != w.Step || s.Loss != w.Loss || s.GradNorm != w.GradNorm || s.Imbalance != w.Imbalance {
				t.Errorf("resumed at step %d: step %d with loss %v, norm %v; undisturbed step %d with %v, %v", k, s.Step, s.Loss, s.GradNorm, w.Step, w.Loss, w.GradNorm)
			}
		}
		sameState(t, fmt.Sprintf("resumed at step %d", k), again, cfg, cfg.Steps)
	}
}
