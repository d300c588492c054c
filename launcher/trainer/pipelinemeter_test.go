package trainer

import (
	"math"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/collective/pipeline"
)

// Ranks that act exactly as their schedule says have the idle time that it predicts.
func TestPipelineMeter(t *testing.T) {
	costs := pipeline.Costs{F: 1, I: 1.5, W: 0.5, Stages: []float64{1, 2, 3, 1}}
	for _, name := range []string{"Interleaved1F1B", "ZBVZeroBubble", "DualPipeV"} {
		s, err := pipeline.New(name, 2, 2, 4)
		if err != nil {
			t.Fatal(err)
		}
		line, err := s.Simulate(costs)
		if err != nil {
			t.Fatal(err)
		}
		err = collective.NewWorld(2).Run(func(c *collective.Comm) error {
			m := &pipelineMeter{schedule: s, comm: c, line: c, since: time.Now()}
			m.begin()
			m.steps[0].begin = 0
			for _, one := range line.Ranks[c.Rank()] {
				begin := one.Begin
				for _, a := range one.Slot {
					took := costs.Stages[a.Stage] * map[pipeline.Kind]float64{pipeline.Forward: 1, pipeline.Backward: 2, pipeline.InputGrad: 1.5, pipeline.WeightGrad: 0.5}[a.Kind]
					m.count(a, m.since.Add(seconds(begin-1)), m.since.Add(seconds(begin+took)), seconds(1))
					begin += took
				}
			}
			got, err := m.gather()
			if err != nil {
				return err
			}
			if want := line.Bubble(); math.Abs(got.Idle-want) > 1e-6 || math.Abs(got.Predicted-want) > 1e-6 || math.Abs(got.Exact-want) > 1e-6 {
				t.Errorf("%s: %g idle, %g predicted, want %g", name, got.Idle, got.Predicted, want)
			}
			if f := got.Times[2][pipeline.Forward]; math.Abs(f-3) > 1e-6 {
				t.Errorf("%s: F of stage 2 takes %g, want 3", name, f)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
