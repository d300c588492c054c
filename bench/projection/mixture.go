package projection

// Mixtures of normal distributions, and their quantiles.

import "math"

// normal is a normal distribution with a weight.
type normal struct{ mean, sd, weight float64 }

// mixture is a mixture of normal distributions.
type mixture []normal

// quantile returns the value below which the share p of the mixture lies.
func (m mixture) quantile(p float64) float64 {
	low, high, total := math.Inf(1), math.Inf(-1), 0.0
	for _, n := range m {
		low, high, total = min(low, n.mean-8*n.sd), max(high, n.mean+8*n.sd), total+n.weight
	}
	for range 60 {
		middle, below := (low+high)/2, 0.0
		for _, n := range m {
			below += n.weight / total * 0.5 * math.Erfc((n.mean-middle)/n.sd/math.Sqrt2)
		}
		if below < p {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}
