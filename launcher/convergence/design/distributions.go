package design

// The two distributions that tests and simulated studies need. gonum has them in a package that
// imports its matrices.

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mathext"
)

// StudentsT is Student's t distribution with that many degrees of freedom.
type StudentsT float64

// CDF returns the probability of a value below t. With x = ν/(t² + ν) and the regularized
// incomplete beta function I, the probability beyond |t|, at one end, is I(x; ν/2, 1/2) / 2.
func (nu StudentsT) CDF(t float64) float64 {
	tail := 0.5 * mathext.RegIncBeta(float64(nu)/2, 0.5, float64(nu)/(t*t+float64(nu)))
	if t > 0 {
		return 1 - tail
	}
	return tail
}

// Quantile returns the t with a probability p, from 0 to 1, below it.
func (nu StudentsT) Quantile(p float64) float64 {
	x := mathext.InvRegIncBeta(float64(nu)/2, 0.5, 2*min(p, 1-p))
	return math.Copysign(math.Sqrt(float64(nu)*(1-x)/x), p-0.5)
}

// chiSquared draws from a χ² distribution with a whole number of degrees of freedom, at least 1.
// Source: Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26,
// 2000: χ² with k degrees is twice a gamma variable of shape k/2.
func chiSquared(random *rand.Rand, degrees int) float64 {
	shape, boost := float64(degrees)/2, 1.0
	if degrees == 2 {
		return 2 * random.ExpFloat64()
	}
	if degrees == 1 {
		shape, boost = shape+1, math.Pow(random.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / (3 * math.Sqrt(d))
	for {
		x := random.NormFloat64()
		v := 1 + x*c
		v *= v * v
		if v <= 0 {
			continue
		}
		u := random.Float64()
		if u < 1-0.0331*(x*x)*(x*x) || math.Log(u) < 0.5*x*x+d*(1-v+math.Log(v)) {
			return 2 * boost * d * v
		}
	}
}
