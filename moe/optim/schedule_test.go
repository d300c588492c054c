package optim

import (
	"math"
	"strings"
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

// With each schedule, the rate is above 0 and at most the peak in all steps. After the end it stays
// at its last value or the floor.
func TestScheduleBounds(t *testing.T) {
	for decay := range decays {
		for _, warmup := range []int{0, 1, 7, 50} {
			for _, frac := range []float64{0, 0.1, 0.5, 1} {
				for _, steps := range []int{1, 2, 19, 40} {
					s := Schedule{LR: 1e-3, Warmup: warmup, DecayFrac: frac, Decay: decay}
					last := 0.0
					for step := range steps {
						lr := s.At(step, steps)
						if !(lr > 0 && lr <= s.LR) {
							t.Errorf("%+v of %d steps: rate %g at step %d", s, steps, lr, step)
						}
						if step < min(warmup, steps) && lr <= last {
							t.Errorf("%+v of %d steps: the warm-up does not rise at step %d", s, steps, step)
						}
						if step > min(warmup, steps) && lr > last {
							t.Errorf("%+v of %d steps: the rate rises at step %d", s, steps, step)
						}
						last = lr
					}
					if lr := s.At(steps+3, steps); !(lr >= 0 && lr <= last) {
						t.Errorf("%+v of %d steps: rate %g after the end, %g at it", s, steps, lr, last)
					}
				}
			}
		}
	}
}

// refusal is a setting that cannot be and the words its error must have.
type refusal struct {
	name  string
	err   error
	words []string
}

func (r refusal) check(t *testing.T) {
	t.Helper()
	if r.err == nil {
		t.Errorf("%s: no error", r.name)
		return
	}
	for _, w := range r.words {
		if !strings.Contains(r.err.Error(), w) {
			t.Errorf("%s: the error lacks %q:\n%v", r.name, w, r.err)
		}
	}
}

func TestScheduleValidate(t *testing.T) {
	with := func(edit func(s *Schedule)) error {
		s := Schedule{LR: 1, Warmup: 2, DecayFrac: 0.5, Decay: "sqrt", MinFactor: 0.1}
		edit(&s)
		return s.Validate()
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, r := range []refusal{
		{"lr", with(func(s *Schedule) { s.LR = 0 }), []string{"optimizer.lr is 0", "positive"}},
		{"lr NaN", with(func(s *Schedule) { s.LR = nan }), []string{"optimizer.lr is NaN"}},
		{"lr Inf", with(func(s *Schedule) { s.LR = inf }), []string{"optimizer.lr is +Inf"}},
		{"warmup", with(func(s *Schedule) { s.Warmup = -1 }), []string{"optimizer.warmup is -1", "0 or more"}},
		{"decay_frac", with(func(s *Schedule) { s.DecayFrac = 1.5 }), []string{"optimizer.decay_frac is 1.5", "from 0 to 1"}},
		{"decay_frac NaN", with(func(s *Schedule) { s.DecayFrac = nan }), []string{"optimizer.decay_frac is NaN"}},
		{"min_factor", with(func(s *Schedule) { s.MinFactor = -0.1 }), []string{"optimizer.min_factor is -0.1"}},
		{"decay", with(func(s *Schedule) { s.Decay = "step" }), []string{`optimizer.decay is "step"`, "cosine, linear, sqrt"}},
		{"all at once", with(func(s *Schedule) { *s = Schedule{Warmup: -1, DecayFrac: 2, MinFactor: 2} }),
			[]string{"optimizer.lr", "optimizer.warmup", "optimizer.decay_frac", "optimizer.min_factor", "optimizer.decay is"}},
	} {
		r.check(t)
	}
}
