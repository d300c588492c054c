package moe

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"spmoe/tensor"
)

// BenchmarkTrain is forward and backward of the debug flavor in BF16, 8 sequences of 128 tokens
// a rank. MFU is the model's FLOPs (6 a parameter and attention) against the peak of the cores
// that the ranks can use, measured in the same run.
func BenchmarkTrain(b *testing.B) {
	const seq, sequences = 128, 8
	cfg, err := FlavorByName("debug")
	if err != nil {
		b.Fatal(err)
	}
	cores := runtime.GOMAXPROCS(0)
	peak := tensor.Peak(tensor.BF16, 100*time.Millisecond) / float64(cores)
	for _, ranks := range []int{1, 2} {
		b.Run(fmt.Sprintf("np%d", ranks), func(b *testing.B) {
			b.ReportAllocs()
			onRanks(b, ranks, cfg, tensor.BF16, seq, func(m *member) error {
				batch := batchOf(uint64(m.comm.Rank()), sequences, seq, cfg.Vocab)
				batch.GlobalSequences = sequences * ranks
				steps := func(n int) error {
					for range n {
						m.model.ZeroGrad()
						if _, err := m.model.Train(m.ex, batch); err != nil {
							return err
						}
					}
					return m.comm.Barrier()
				}
				if err := steps(1); err != nil {
					return err
				}
				if m.comm.Rank() == 0 {
					b.ResetTimer()
				}
				return steps(b.N)
			})
			rate := float64(b.N*ranks*sequences*seq) / b.Elapsed().Seconds()
			b.ReportMetric(rate, "tokens/s")
			b.ReportMetric(100*rate*cfg.FLOPsPerToken(seq)/(peak*float64(min(ranks, cores))), "%MFU")
		})
	}
}
