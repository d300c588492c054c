package tensor

import (
	"runtime"
	"sync"
	"time"

	"spmoe/tensor/internal/gemm"
)

// Peak measures the rate of multiply-adds on operands of this type that all cores reach together in
// registers, in FLOP/s. This is the upper bound for every matrix product. The measurement takes
// about d. Each core counts with the best of several samples, because a busy neighbor can only
// lower the rate.
func Peak(dtype DType, d time.Duration) float64 {
	var mu sync.Mutex
	var total float64
	var cores sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		cores.Go(func() {
			var rate float64
			for range peakSamples {
				rate = max(rate, PeakCore(dtype, d/peakSamples))
			}
			mu.Lock()
			defer mu.Unlock()
			total += rate
		})
	}
	cores.Wait()
	return total
}

// peakSamples is the number of samples per core in one measurement of Peak.
const peakSamples = 5

// PeakCore is Peak for the core that the caller runs on.
func PeakCore(dtype DType, d time.Duration) float64 {
	if dtype == BF16 {
		return gemm.PeakBF16(d)
	}
	return gemm.PeakFP32(d)
}
