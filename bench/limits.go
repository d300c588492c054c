package bench

import (
	"math"
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

// streamedBytes is larger than the caches of this class of machine.
const streamedBytes = 256 << 20

// reading returns the rate of reading memory outside of caches: the best of reading at one place
// and at several places at once.
func reading() limit {
	return limit{"streaming read", "GB/s", func(s *suite) Rate {
		x := s.touched(streamedBytes).Reshape(streamedParts, streamedBytes/4/streamedParts)
		next, seen := 0, uint32(0)
		at := func(places int) Rate {
			return rateOf(1e-9*streamedBytes/streamedParts, func() {
				seen ^= readLines(x.Index(next).F32(), places)
				next = (next + 1) % streamedParts
			})
		}
		one, several := at(1), at(severalPlaces)
		return func(d time.Duration) float64 { return max(one(d/2), several(d/2)) }
	}}
}

// streamedParts is the number of calls that read a whole stream.
const streamedParts = 8

// updating returns the rate of reading and writing a buffer of this size in place. It counts bytes
// read and written.
func updating(bytes int) limit {
	return limit{"update of the same bytes in place", "GB/s", func(s *suite) Rate {
		x := s.touched(bytes).F32()
		return rateOf(2e-9*float64(bytes), func() { updateLines(x, severalPlaces) })
	}}
}

// Memory delivers cache lines: reading one word per line transfers the whole line, and reading the
// rest would measure the core. Hardware prefetchers follow each stream separately and stop at the
// end of its page, so some CPUs are faster with several streams than with one.

const (
	severalPlaces = 8
	lineFloats    = tensor.Alignment / 4
)

// readLines reads all lines of x, at several places at once, and returns a value that depends on
// each.
func readLines(x []float32, places int) (seen uint32) {
	apart := len(x) / places
	for i := 0; i < apart; i += lineFloats {
		for at := i; at < len(x); at += apart {
			seen ^= math.Float32bits(x[at])
		}
	}
	return seen
}

// updateLines changes all lines of x, at several places at once.
func updateLines(x []float32, places int) {
	apart := len(x) / places
	for i := 0; i < apart; i += lineFloats {
		for at := i; at < len(x); at += apart {
			x[at]++
		}
	}
}
