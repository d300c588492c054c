package trainer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor"
)

// BenchmarkGuards compares steps in which weights and optimizer state are checked with steps in
// which they are not. A guarded pair of steps begins with all seals made at once.
func BenchmarkGuards(b *testing.B) {
	compareGuarded(b, func(r *rank, on int) {
		r.memory.Period, r.activations.Period = on, 0
		if on == 1 {
			r.Optim.Seal()
			return
		}
		r.memory.Taken = false
		r.Optim.Unseal()
	})
}

// BenchmarkAllGuards compares steps with all guards with steps without any.
func BenchmarkAllGuards(b *testing.B) {
	compareGuarded(b, func(r *rank, on int) {
		r.memory.Period, r.activations.Period = on, on
		if on == 1 {
			r.Optim.Seal()
			return
		}
		r.memory.Taken = false
		r.Optim.Unseal()
	})
}

// BenchmarkGuardActivations compares steps whose activations and gradients are sealed with steps in
// which they are not.
func BenchmarkGuardActivations(b *testing.B) {
	compareGuarded(b, func(r *rank, on int) { r.activations.Period, r.memory.Period = on, 0 })
}

// compareGuarded compares guarded steps with unguarded ones, two by two in turns within one run:
// the second of two steps is measured. It gives the medians, and the median of how much longer a
// guarded step takes than its neighbour without.
func compareGuarded(b *testing.B, guard func(r *rank, on int)) {
	for _, c := range []struct {
		flavor       string
		ranks, batch int
	}{{"debug", 2, 4}, {"debug", 2, 8}, {"debug", 8, 8}, {"small", 2, 4}, {"small", 2, 8}} {
		b.Run(fmt.Sprintf("%s/np%d/batch%d", c.flavor, c.ranks, c.batch), func(b *testing.B) {
			cfg, err := config.Default(c.flavor)
			if err != nil {
				b.Fatal(err)
			}
			cfg.Seq, cfg.Batch, cfg.Out, cfg.EvalSequences = 512, c.batch, b.TempDir(), 8
			job, err := Prepare(cfg, c.ranks, "", &reports{})
			if err != nil {
				b.Fatal(err)
			}
			defer job.Close()
			var times [2][]float64 // milliseconds without and with the guard
			err = spmd.Goroutines{N: c.ranks}.Run(func(c *collective.Comm) error {
				ex := tensor.NewParallelExec(cfg.RankThreads(c.Size(), runtime.GOMAXPROCS(0)))
				defer ex.Close()
				r, err := newRank(job, c, ex, 1)
				if err != nil {
					return err
				}
				for i := range 4 * b.N {
					on := i / 2 % 2
					guard(r, on)
					r.constants.On = on == 1
					r.constants.Begin()
					if err := c.Barrier(); err != nil {
						return err
					}
					begin := time.Now()
					if _, _, err := r.step(context.Background()); err != nil {
						return err
					}
					if err := c.Barrier(); err != nil {
						return err
					}
					if r.lead() && i%2 == 1 {
						times[on] = append(times[on], float64(time.Since(begin).Microseconds())/1e3)
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			var more []float64
			for i, t := range times[1] {
				more = append(more, 100*(t/times[0][i]-1))
			}
			median := func(x []float64) float64 { return slices.Sorted(slices.Values(x))[len(x)/2] }
			b.ReportMetric(median(times[0]), "ms/unguarded")
			b.ReportMetric(median(times[1]), "ms/guarded")
			b.ReportMetric(median(more), "%more")
			b.ReportMetric(0, "ns/op")
		})
	}
}
