package mx

// Hopper's accumulator for FP8.

import "math"

const (
	hopperTerms = 32 // products that are added at a time
	hopperBits  = 14 // of a term, below the largest exponent
)

// sumHopper sums along k as SumHopper describes.
func sumHopper(sums *[tile * tile]float64, a, b []float32) {
	var terms [hopperTerms + 1]float64
	for i := range tile {
		for j := range tile {
			sum := 0.0
			for k := 0; k < len(a); k += hopperTerms * tile {
				n := 0
				for at := k; at < min(k+hopperTerms*tile, len(a)); at += tile {
					terms[n] = float64(a[at+i]) * float64(b[at+j])
					n++
				}
				terms[n] = sum
				sum = addAligned(terms[:n+1])
			}
			sums[i*tile+j] = sum
		}
	}
}

// addAligned adds up terms that are truncated to hopperBits bits below the largest exponent.
func addAligned(terms []float64) float64 {
	largest := 0.0
	for _, t := range terms {
		largest = max(largest, math.Abs(t))
	}
	if largest == 0 || math.IsInf(largest, 0) || largest != largest {
		return largest
	}
	unit := math.Ldexp(1, math.Ilogb(largest)-(hopperBits-1))
	sum := 0.0
	for _, t := range terms {
		sum += math.Trunc(t / unit)
	}
	return sum * unit
}
