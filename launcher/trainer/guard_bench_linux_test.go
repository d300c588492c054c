package trainer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor"
)

// cpuSeconds returns the processor time of this process, which depends less on other work on the
// machine than the time of day does.
func cpuSeconds() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkGuards gives the processor time of the guards as shares of a step: of the comparisons of
// memory, of a replay every 256 steps, and of both. The update's kernel takes checksums in all
// steps: BenchmarkAdamW has their cost.
func BenchmarkGuards(b *testing.B) {
	for _, c := range []struct {
		flavor string
		batch  int
	}{{"debug", 4}, {"small", 4}} { // 2,048 tokens per step
		b.Run(fmt.Sprintf("%s/batch%d", c.flavor, c.batch), func(b *testing.B) {
			cfg, err := config.Default(c.flavor)
			if err != nil {
				b.Fatal(err)
			}
			every := float64(cfg.Guard.Replay)
			cfg.Seq, cfg.Batch, cfg.MicroBatch, cfg.Out, cfg.EvalSequences = 512, c.batch, 0, b.TempDir(), 8
			const ranks = 2
			job, err := Prepare(cfg, ranks, "", &reports{})
			if err != nil {
				b.Fatal(err)
			}
			defer job.Close()
			var state, replay, both []float64 // shares of a step
			err = spmd.Goroutines{N: ranks}.Run(func(c *collective.Comm) error {
				ex := tensor.NewParallelExec(cfg.RankThreads(c.Size(), runtime.GOMAXPROCS(0)))
				defer ex.Close()
				r, err := newRank(job, c, ex, 1)
				if err != nil {
					return err
				}
				measure := func(work func() error) (took float64, err error) {
					if err := c.Barrier(); err != nil {
						return 0, err
					}
					begin := cpuSeconds()
					if err := work(); err != nil {
						return 0, err
					}
					if err := c.Barrier(); err != nil {
						return 0, err
					}
					return cpuSeconds() - begin, c.Barrier()
				}
				step := func(replay int) func() error {
					return func() error {
						r.gradients.Replay = replay
						_, _, err := r.step(context.Background())
						return err
					}
				}
				const comparisons = 4
				compare := func() error {
					for range comparisons {
						r.guards.state.Compare()
					}
					return nil
				}
				for range b.N + 1 {
					var took [3]float64
					for i, work := range []func() error{step(0), compare, step(1)} {
						if took[i], err = measure(work); err != nil {
							return err
						}
					}
					if r.lead() {
						more := took[1] / comparisons / took[0]
						twice := (took[2]/took[0] - 1) / every
						state, replay, both = append(state, 100*more), append(replay, 100*twice), append(both, 100*(more+twice))
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			median := func(x []float64) float64 { return slices.Sorted(slices.Values(x[1:]))[(len(x)-1)/2] }
			b.ReportMetric(median(state), "%state")
			b.ReportMetric(median(replay), "%replay")
			b.ReportMetric(median(both), "%both")
			b.ReportMetric(0, "ns/op")
		})
	}
}
