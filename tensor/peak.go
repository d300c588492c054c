package tensor

import (
	"runtime"
	"sync"
	"time"

	"spmoe/tensor/internal/gemm"
)

// Peak measures for about d what rate of multiply-adds on operands of this type the machine's
// cores reach together in registers, in FLOP/s: the ceiling of every matrix product.
func Peak(dtype DType, d time.Duration) float64 {
	measure := gemm.PeakFP32
	if dtype == BF16 {
		measure = gemm.PeakBF16
	}
	var mu sync.Mutex
	var total float64
	var cores sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		cores.Go(func() {
			rate := measure(d)
			mu.Lock()
			defer mu.Unlock()
			total += rate
		})
	}
	cores.Wait()
	return total
}
