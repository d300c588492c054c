package design

// Boundaries of group-sequential t-tests. Tables and recursions for them assume a known variance,
// which is too optimistic for few pairs. So the bounds are quantiles of simulated studies without a
// difference: they hold for normal differences of any variance.

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// spendingPower is ρ of the spending function α·t^ρ (Kim and DeMets, Biometrika 74, 1987): 1 spends
// evenly, like Pocock's bounds; 3 hardly spends at first, like O'Brien and Fleming's.
const spendingPower = 1.5

// nullStudies is the number of simulated studies. The error of a type-I error of 5 % is 0.06 %.
const nullStudies = 1 << 17

// nullPaths returns the t statistics of studies without a difference: [look][study].
func nullPaths(looks []int) [][]float64 {
	random := rand.New(rand.NewPCG(seedOfBounds, 0))
	paths := make([][]float64, len(looks))
	for i := range paths {
		paths[i] = make([]float64, nullStudies)
	}
	for study := range nullStudies {
		var m moments
		for i, seeds := range looks {
			for m.n < seeds {
				m.add(random.NormFloat64())
			}
			s := m.sample()
			paths[i][study] = s.Mean / s.error()
		}
	}
	return paths
}

// spend returns the level of the t-test at each look, so that the looks up to a share t of the
// seeds reject with probability alpha·t^power if there is nothing to find. A two-sided test takes
// the absolute values of paths and twice the tail: tails is 1 or 2.
func spend(looks []int, paths [][]float64, alpha, power, tails float64) []float64 {
	levels := make([]float64, len(looks))
	ended := make([]bool, nullStudies)
	spent := 0
	for i, seeds := range looks {
		t := float64(seeds) / float64(looks[len(looks)-1])
		total := int(alpha * math.Pow(t, power) * nullStudies)
		bound := largest(paths[i], ended, total-spent)
		for study, x := range paths[i] {
			ended[study] = ended[study] || x > bound
		}
		levels[i] = rounded(tails * student(seeds).CDF(-bound))
		spent = total
	}
	return levels
}

// largest returns the bound that n of the values of studies under way exceed.
func largest(values []float64, ended []bool, n int) float64 {
	left := make([]float64, 0, len(values))
	for study, x := range values {
		if !ended[study] {
			left = append(left, x)
		}
	}
	slices.Sort(left)
	return left[len(left)-1-n]
}

// rounded returns three digits of a level, the same on every machine.
func rounded(level float64) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(level, 'e', 2, 64), 64)
	if err != nil {
		panic(err) // Go wrote the number
	}
	return x
}

// absolute returns the absolute values of paths.
func absolute(paths [][]float64) [][]float64 {
	all := make([][]float64, len(paths))
	for i, path := range paths {
		all[i] = make([]float64, len(path))
		for study, x := range path {
			all[i][study] = math.Abs(x)
		}
	}
	return all
}
