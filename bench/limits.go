package bench

import (
	"time"

	"spmoe/tensor"
)

// The limits of one core.

func peak(dtype tensor.DType) limit {
	return limit{"peak of multiply-adds in registers", "GFLOP/s", func(d time.Duration) float64 { return tensor.PeakCore(dtype, d) / 1e9 }}
}

// copying is the rate of copying between buffers of this size, bytes read and written counted.
func copying(bytes int) limit {
	src, dst := make([]byte, bytes), make([]byte, bytes)
	for i := range src {
		src[i] = byte(i)
	}
	return limit{"copy of the same bytes", "GB/s", func(d time.Duration) float64 {
		return 2 * rate(bytes, d, func() { copy(dst, src) })
	}}
}

// reading is the rate of reading a stream that no cache holds.
func reading() limit {
	const bytes = 256 << 20
	stream := tensor.New(tensor.FP32, bytes/4)
	return limit{"streaming read", "GB/s", func(d time.Duration) float64 {
		return rate(bytes, d, func() { tensor.SumSquares(stream) })
	}}
}

// rate returns the GB/s of f, which moves this many bytes.
func rate(bytes int, d time.Duration, f func()) float64 {
	begin, n := time.Now(), 0
	for {
		f()
		n++
		if t := time.Since(begin); t >= d {
			return float64(n) * float64(bytes) / 1e9 / t.Seconds()
		}
	}
}
