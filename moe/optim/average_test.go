package optim

import (
	"math"
	"slices"
	"testing"

	"spmoe/tensor"
)

// The average has the weights of its formula, and none of the initial weights. Published, it is in
// the working weights of all ranks until the master weights are published again.
func TestAverage(t *testing.T) {
	const decay, steps = 0.7, 5
	for name, rule := range map[string]Rule{"adamw": adamw(), "muon": muon()} {
		masters := make([]*wholeState, steps)
		end, published, again := newState(), newState(), newState()
		for i := range masters {
			masters[i] = newState()
		}
		onRanks(t, 2, tensor.FP32, Averaged(rule, decay), func(r *rank) error {
			if err := r.opt.Init(3); err != nil {
				return err
			}
			if r.opt.Averages() {
				t.Error("there is an average before the first update")
			}
			for i := range masters {
				if err := r.exactGradients(i); err != nil {
					return err
				}
				if _, err := r.opt.Step(0.05); err != nil {
					return err
				}
				if err := masters[i].add(r); err != nil {
					return err
				}
			}
			if err := end.add(r); err != nil {
				return err
			}
			if err := r.opt.PublishAverage(); err != nil {
				return err
			}
			if err := published.add(r); err != nil {
				return err
			}
			if err := r.opt.Publish(); err != nil {
				return err
			}
			return again.add(r)
		})
		again.equals(t, end)
		total := (1 - math.Pow(decay, steps)) / (1 - decay)
		for param, average := range end.vectors[AverageName] {
			for i, got := range average {
				want := 0.0
				for n, m := range masters {
					want += math.Pow(decay, float64(steps-1-n)) / total * float64(m.master()[param][i])
				}
				if math.Abs(float64(got)-want) > 1e-6*(1+math.Abs(want)) {
					t.Fatalf("%s: element %d of %s is %g, want %g", name, i, param, got, want)
				}
				if work := published.work[param][i]; work != got {
					t.Fatalf("%s: element %d of %s is published as %g, want %g", name, i, param, work, got)
				}
			}
		}
		if slices.Equal(end.work["lm_head.weight"], published.work["lm_head.weight"]) {
			t.Errorf("%s: the average is the last weights", name)
		}
	}
}
