package tensor

import (
	"runtime"
	"sync"
	"time"

	"spmoe/tensor/internal/gemm"
)

// Peak measures for about d what rate of multiply-adds on operands of this type the machine's
// cores reach together in registers, in FLOP/s: the ceiling of every matrix product. Of each
// core the best of several moments counts, because a busy neighbour can only lower it.
func Peak(dtype DType, d time.Duration) float64 {
	var mu sync.Mutex
	var total float64
	var cores sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		cores.Go(func() {
			var rate float64
			for range peakMoments {
				rate = max(rate, PeakCore(dtype, d/peakMoments))
			}
			mu.Lock()
			defer mu.Unlock()
			total += rate
		})
	}
	cores.Wait()
	return total
}

// peakMoments is the number of moments in one measurement of Peak.
const peakMoments = 5

// PeakCore is Peak of the one core that the caller runs on. UINT8 stands for integers of 8 bits.
func PeakCore(dtype DType, d time.Duration) float64 {
	switch dtype {
	case BF16:
		return gemm.PeakBF16(d)
	case UINT8:
		return gemm.PeakInt8(d)
	}
	return gemm.PeakFP32(d)
}
