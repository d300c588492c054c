// Package design plans comparisons of two ways to train: after how many seeds the paired
// differences of their losses are judged, at which significance levels, and how likely a plan is to
// reach each verdict.
//
// A plan with several looks is group-sequential. Its tests share a type-I error of [Alpha] over all
// looks by alpha spending (Lan and DeMets, Biometrika 70, 1983).
package design

// Alpha bounds the probabilities of both wrong verdicts: [Equivalent] although a difference is as
// large as the margin, and [Different] although there is none.
const Alpha = 0.05

// Losses is the number of losses that a verdict is about: training and validation.
const Losses = 2

// MaxLooks is the largest number of looks of a group-sequential design.
const MaxLooks = 8

// firstSeeds is the least number of seeds at the first of several looks: the standard deviation of
// fewer pairs says too little.
const firstSeeds = 5

// Look is a moment at which a comparison is judged, and the levels of its tests there.
type Look struct {
	Seeds int `json:"seeds"` // pairs so far

	// Equivalence is the level of each one-sided test against the margin. All losses have to pass
	// both tests, so no correction for several losses is needed (an intersection-union test).
	Equivalence float64 `json:"equivalence_level"`

	// Difference is the level of the two-sided test of one loss against zero. One loss suffices for
	// a verdict, so it is a share of what all losses may spend (Bonferroni).
	Difference float64 `json:"difference_level"`
}

// Design says when and how a comparison is judged. It is fixed before the first run.
type Design struct {
	Margin float64 // largest difference that counts as equivalent, a fraction of the baseline's loss
	Looks  []Look
}

// Fixed is a design with one look, after a number of seeds.
func Fixed(margin float64, seeds int) Design {
	return Design{margin, []Look{{seeds, Alpha, Alpha / Losses}}}
}

// Sequential is a design with up to [MaxLooks] looks at regular intervals, the last one after a
// number of seeds. A comparison ends at the first look with a verdict.
func Sequential(margin float64, seeds int) Design {
	every := (seeds + MaxLooks - 1) / MaxLooks
	var at []int
	for n := every; n < seeds; n += every {
		if n >= firstSeeds {
			at = append(at, n)
		}
	}
	if at = append(at, seeds); len(at) == 1 {
		return Fixed(margin, seeds)
	}
	paths := nullPaths(at)
	equivalence := spend(at, paths, Alpha, spendingPower, 1)
	difference := spend(at, absolute(paths), Alpha/Losses, spendingPower, 2)
	d := Design{Margin: margin}
	for i, n := range at {
		d.Looks = append(d.Looks, Look{n, equivalence[i], difference[i]})
	}
	return d
}

// Seeds returns the largest number of seeds that the design may take.
func (d Design) Seeds() int { return d.Looks[len(d.Looks)-1].Seeds }

// At returns the look after a number of seeds, and whether it is the last one. Without such a look
// it returns that of a fixed design.
func (d Design) At(seeds int) (look Look, last bool) {
	for i, look := range d.Looks {
		if look.Seeds == seeds {
			return look, i == len(d.Looks)-1
		}
	}
	return Fixed(d.Margin, seeds).Looks[0], true
}
