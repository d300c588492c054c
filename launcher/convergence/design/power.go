package design

import "sync"

// How many seeds a fixed design needs.

// studiesOfPower is the number of simulated studies behind a chance: its error is below 1 %.
const studiesOfPower = 4000

// FixedChances returns the chance that a fixed design shows equivalence if there is no difference,
// for each number of seeds up to most.
func FixedChances(margin float64, scatter Scatter, most int) []float64 {
	tests := make([]critical, most+1)
	for seeds := range tests {
		tests[seeds] = Fixed(margin, seeds).critical(seeds)
	}
	chances, pairs := make([]float64, most+1), newGenerator(scatter, Effect{})
	for range studiesOfPower {
		pairs.begin()
		var train, heldOut moments
		for seeds := 1; seeds <= most; seeds++ {
			a, b := pairs.next()
			train.add(a)
			heldOut.add(b)
			if Fixed(margin, seeds).judge(tests[seeds], train.sample(), heldOut.sample()) == Equivalent {
				chances[seeds] += 1.0 / studiesOfPower
			}
		}
	}
	return chances
}

// fixedDesigns are those whose chances fixedChances has.
type fixedDesigns struct {
	margin  float64
	scatter Scatter
	most    int
}

// fixedChances caches results of FixedChances, because a page asks several times for each of them.
var fixedChances sync.Map

// SeedsFor returns the least number of seeds, up to most, with which a fixed design has a chance to
// show equivalence if there is no difference. It returns false if most do not suffice.
func SeedsFor(chance, margin float64, scatter Scatter, most int) (seeds int, ok bool) {
	designs := fixedDesigns{margin, scatter, most}
	chances, ok := fixedChances.Load(designs)
	if !ok {
		chances = FixedChances(margin, scatter, most)
		fixedChances.Store(designs, chances)
	}
	for seeds, c := range chances.([]float64) {
		if c >= chance {
			return seeds, true
		}
	}
	return most, false
}
