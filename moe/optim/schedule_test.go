package optim

import (
	"math"
	"testing"
)

func TestSchedule(t *testing.T) {
	half, sixth := math.Sqrt(0.5), math.Sqrt(1.0/6)
	for _, c := range []struct {
		name  string
		s     Schedule
		steps int
		want  []float64 // of the steps 0, 1, ...
	}{
		{"constant", Schedule{LR: 2, Decay: "linear"}, 4, []float64{2, 2, 2, 2}},
		{"warm-up begins above zero", Schedule{LR: 4, Warmup: 4, Decay: "linear"}, 6, []float64{1, 2, 3, 4, 4, 4}},
		{"linear: four steps of a fifth way", Schedule{LR: 1, Warmup: 2, DecayFrac: 0.4, Decay: "linear"}, 10,
			[]float64{0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25}},
		{"sqrt", Schedule{LR: 2, DecayFrac: 0.5, Decay: "sqrt"}, 4, []float64{2, 2, 2, 2 * (1 - half)}},
		{"cosine", Schedule{LR: 1, DecayFrac: 1, Decay: "cosine"}, 4, []float64{1, (1 + half) / 2, 0.5, (1 - half) / 2}},
		{"min_factor", Schedule{LR: 10, DecayFrac: 0.5, Decay: "linear", MinFactor: 0.2}, 8,
			[]float64{10, 10, 10, 10, 10, 8, 6, 4}},
		{"min_factor 1", Schedule{LR: 3, DecayFrac: 1, Decay: "cosine", MinFactor: 1}, 3, []float64{3, 3, 3}},
		{"decay_frac is rounded", Schedule{LR: 1, DecayFrac: 0.5, Decay: "linear"}, 5, []float64{1, 1, 1, 2.0 / 3, 1.0 / 3}},
		{"decay after warm-up only", Schedule{LR: 6, Warmup: 2, DecayFrac: 1, Decay: "linear"}, 5, []float64{3, 6, 6, 4, 2}},
		{"sqrt after warm-up", Schedule{LR: 1, Warmup: 1, DecayFrac: 1, Decay: "sqrt"}, 7,
			[]float64{1, 1, 1 - sixth, 1 - math.Sqrt(2.0/6), 1 - half, 1 - math.Sqrt(4.0/6), 1 - math.Sqrt(5.0/6)}},
		{"warm-up of the whole run", Schedule{LR: 3, Warmup: 3, DecayFrac: 0.5, Decay: "linear"}, 3, []float64{1, 2, 3}},
		{"warm-up longer than the run", Schedule{LR: 4, Warmup: 100, DecayFrac: 0.5, Decay: "cosine"}, 4, []float64{1, 2, 3, 4}},
		{"one step", Schedule{LR: 5, DecayFrac: 1, Decay: "linear"}, 1, []float64{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.s.Validate(); err != nil {
				t.Fatal(err)
			}
			if len(c.want) != c.steps {
				t.Fatalf("%d values for %d steps", len(c.want), c.steps)
			}
			for step, want := range c.want {
				if got := c.s.At(step, c.steps); math.Abs(got-want) > 1e-12*c.s.LR {
					t.Errorf("step %d: %.15g, want %.15g", step, got, want)
				}
			}
		})
	}
}
