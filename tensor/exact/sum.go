// Package exact adds up float64 numbers without rounding. A sum depends neither on the order of its
// terms nor on their distribution over threads and ranks.
package exact

import (
	"math"
	"math/big"
)

// Sum is a fixed-point number in units of 2^-1074, the smallest positive float64 (U. Kulisch's long
// accumulator). It holds up to 2^31 terms. Two Sums are added element by element as integers, on
// one machine or across ranks.
//
// Elements [0, limbs) are digits of 32 bits, least significant first. Carries between them are not
// propagated before Value. The next elements count the terms that are NaN, +Inf and -Inf.
type Sum [limbs + 3]int64

const (
	digit      = 32
	limbs      = (2046+52)/digit + 1 // up to the last bit of the largest number
	nans       = limbs
	infinities = limbs + 1 // positive, then negative
)

// Add adds x.
func (s *Sum) Add(x float64) {
	bits := math.Float64bits(x)
	exponent, mantissa := int(bits>>52&0x7ff), bits&(1<<52-1)
	switch exponent {
	case 0x7ff:
		s.addSpecial(x)
		return
	case 0:
		exponent = 1
	default:
		mantissa |= 1 << 52
	}
	at, shift := (exponent-1)/digit, (exponent-1)%digit
	low := mantissa << shift
	high := mantissa >> (digit - shift) >> digit // the bits shifted out of low
	parts := [3]int64{int64(low & (1<<digit - 1)), int64(low >> digit), int64(high)}
	for i, part := range parts {
		if i == 2 && part == 0 {
			return // the largest numbers have no third digit
		}
		if x < 0 {
			part = -part
		}
		s[at+i] += part
	}
}

func (s *Sum) addSpecial(x float64) {
	switch {
	case x != x:
		s[nans]++
	case x > 0:
		s[infinities]++
	default:
		s[infinities+1]++
	}
}

// Value returns the sum, rounded once to nearest even. It is NaN if a term is NaN or if there are
// infinities of both signs.
func (s *Sum) Value() float64 {
	positive, negative := s[infinities] > 0, s[infinities+1] > 0
	switch {
	case s[nans] > 0 || positive && negative:
		return math.NaN()
	case positive:
		return math.Inf(1)
	case negative:
		return math.Inf(-1)
	}
	var total, limb big.Int
	for i := limbs - 1; i >= 0; i-- {
		total.Lsh(&total, digit)
		total.Add(&total, limb.SetInt64(s[i]))
	}
	var value big.Float
	value.SetInt(&total)
	value.SetMantExp(&value, -1074)
	x, _ := value.Float64()
	return x
}
