package bench

import (
	"math"
	"time"

	"spmoe/tensor"
)

// The limits of one core.

func peak(dtype tensor.DType) limit {
	return limit{"peak of multiply-adds in registers", "GFLOP/s", func(*suite) Rate { return PeakCore(dtype) }}
}

// PeakCore is the rate, in GFLOP/s, of nothing but multiply-adds in the registers of one core.
func PeakCore(dtype tensor.DType) Rate {
	return func(d time.Duration) float64 { return tensor.PeakCore(dtype, d) / 1e9 }
}

// copying is the rate of copying between buffers of this size, bytes read and written counted.
func copying(bytes int) limit {
	return limit{"copy of the same bytes", "GB/s", func(s *suite) Rate {
		src, dst := s.touched(bytes).F32(), s.touched(bytes).F32()
		return rateOf(2e-9*float64(bytes), func() { copy(dst, src) })
	}}
}

// touched returns memory that has been written to: what has not been is one page of zeros, seen
// many times.
func (s *suite) touched(bytes int) tensor.Tensor {
	t := s.ex.New(tensor.FP32, bytes/4)
	t.Zero()
	return t
}

// streamedBytes is more than any cache of this class of machine holds.
const streamedBytes = 256 << 20

// reading is the rate of reading what no cache holds: the best of reading at one place and at
// several at once.
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

// streamedParts is the number of calls that read all of a stream.
const streamedParts = 8

// updating is the rate of reading and writing all of a buffer of this size where it is, bytes read
// and written counted.
func updating(bytes int) limit {
	return limit{"update of as many bytes in place", "GB/s", func(s *suite) Rate {
		x := s.touched(bytes).F32()
		return rateOf(2e-9*float64(bytes), func() { updateLines(x, severalPlaces) })
	}}
}

// Memory delivers cache lines: to look at one word of each is to read it all, and to look at the
// rest would measure the core. Hardware prefetchers follow each place of a walk for itself and stop
// at the end of its page, so that some CPUs are faster with several places than with one.

const (
	severalPlaces = 8
	lineFloats    = tensor.Alignment / 4
)

// readLines reads all lines of x, at this many places at once, and returns something that depends
// on each.
func readLines(x []float32, places int) (seen uint32) {
	apart := len(x) / places
	for i := 0; i < apart; i += lineFloats {
		for at := i; at < len(x); at += apart {
			seen ^= math.Float32bits(x[at])
		}
	}
	return seen
}

// updateLines changes all lines of x, at this many places at once.
func updateLines(x []float32, places int) {
	apart := len(x) / places
	for i := 0; i < apart; i += lineFloats {
		for at := i; at < len(x); at += apart {
			x[at]++
		}
	}
}
