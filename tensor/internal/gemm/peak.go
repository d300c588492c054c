package gemm

// The peak arithmetic rate of a core, measured by a loop of nothing but multiply-adds in registers.

import "time"

// PeakBF16 returns the rate (FLOP/s) of one core in a register-only loop of this tier's BF16
// instruction. It measures for about d.
func PeakBF16(d time.Duration) float64 { return rate(active.peakBF16, d) }

// PeakFP32 is PeakBF16 for FP32.
func PeakFP32(d time.Duration) float64 { return rate(active.peakFP32, d) }

func rate(loop func(rounds int) float64, d time.Duration) float64 {
	const rounds = 10_000 // under 100 µs per call, so that the garbage collector can stop it
	flops := 0.0
	start := time.Now()
	for {
		flops += loop(rounds)
		if t := time.Since(start); t >= d {
			return flops / t.Seconds()
		}
	}
}
