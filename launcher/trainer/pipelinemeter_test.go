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
	stages := []float64{1, 2, 3, 1}
	kinds := map[pipeline.Kind]pipeline.Took{pipeline.Forward: {Sent: 1, All: 1}, pipeline.Backward: {Sent: 1.5, All: 2}, pipeline.InputGrad: {Sent: 1.5, All: 1.5}, pipeline.WeightGrad: {Sent: 0.5, All: 0.5}}
	took := func(a pipeline.Action) pipeline.Took {
		return pipeline.Took{Sent: stages[a.Stage] * kinds[a.Kind].Sent, All: stages[a.Stage] * kinds[a.Kind].All}
	}
	for _, name := range []string{"1F1B", "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV"} {
		s, err := pipeline.New(name, 2, map[bool]int{true: 1, false: 2}[name == "1F1B"], 4)
		if err != nil {
			t.Fatal(err)
		}
		line, err := s.SimulateTimes(took)
		if err != nil {
			t.Fatal(err)
		}
		err = collective.NewWorld(2).Run(func(c *collective.Comm) error {
			m := &pipelineMeter{schedule: s, comm: c, line: c, since: time.Now()}
			m.begin()
			m.steps[0].begin = 0
			for _, one := range line.Ranks[c.Rank()] {
				m.count(one.Slot[0], took(one.Slot[0]), seconds(one.End))
			}
			got, err := m.gather()
			if err != nil {
				return err
			}
			if want := line.Bubble(); math.Abs(got.Idle-want) > 1e-6 || math.Abs(got.Predicted-want) > 1e-6 || math.Abs(got.Exact-want) > 1e-6 {
				t.Errorf("%s: %g idle, %g predicted, want %g", name, got.Idle, got.Predicted, want)
			}
			if f := got.Times[1][pipeline.Forward]; math.Abs(f-2) > 1e-6 {
				t.Errorf("%s: F of stage 1 takes %g, want 2", name, f)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
