package bench

import (
	"time"

	"spmoe/tensor"
)

// The limits of one core.

func peak(dtype tensor.DType) limit {
	return limit{"peak of multiply-adds in registers", "GFLOP/s", func(*suite) Rate { return peakCore(dtype) }}
}

// peakCore returns the rate, in GFLOP/s, of multiply-adds in the registers of one core.
func peakCore(dtype tensor.DType) Rate {
	return func(d time.Duration) float64 { return tensor.PeakCore(dtype, d) / 1e9 }
}

// copying returns the rate of copying between buffers of this size. It counts bytes read and
// written.
func copying(bytes int) limit {
	return limit{"copy of the same bytes", "GB/s", func(s *suite) Rate {
		src, dst := s.touched(bytes).F32(), s.touched(bytes).F32()
		return rateOf(2e-9*float64(bytes), func() { copy(dst, src) })
	}}
}

// touched returns memory that has been written. Untouched memory is a single page of zeros, mapped
// many times.
func (s *suite) touched(bytes int) tensor.Tensor {
	t := s.ex.New(tensor.FP32, bytes/4)
	t.Zero()
	return t
}

// updating returns the rate of reading and writing a buffer of this size in place. It counts bytes
// read and written. Memory delivers cache lines: changing one word of a line transfers it whole.
func updating(bytes int) limit {
	const lineFloats = tensor.Alignment / 4
	return limit{"update of the same bytes in place", "GB/s", func(s *suite) Rate {
		x := s.touched(bytes).F32()
		return rateOf(2e-9*float64(bytes), func() {
			for i := 0; i < len(x); i += lineFloats {
				x[i]++
			}
		})
	}}
}
