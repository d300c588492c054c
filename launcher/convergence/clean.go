package convergence

// Removes numbers that JSON cannot hold from a result. A diverged run leaves such numbers.

import (
	"slices"

	"spmoe/launcher/record"
)

// cleaned returns a copy of a result with finite numbers only. Differences that are not finite,
// such as those of a diverged run, are nil; other such numbers are 0.
func cleaned(r Result) Result {
	zero := func(v *float64) {
		if !finite(*v) {
			*v = 0
		}
	}
	zero(&r.Margin)
	zero(&r.Setup.EMA)
	for _, spread := range []*Spread{&r.Spread.Train, &r.Spread.HeldOut} {
		zero(&spread.Mean)
		zero(&spread.SD)
	}
	r.Arms = slices.Clone(r.Arms)
	for i := range r.Arms {
		arm := &r.Arms[i]
		arm.Train, arm.HeldOut = finiteDifference(arm.Train), finiteDifference(arm.HeldOut)
		if arm.Averaged != nil {
			arm.Averaged = &Averaged{Difference: finiteDifference(arm.Averaged.Difference), Verdict: arm.Averaged.Verdict}
		}
		zero(&arm.Speed)
		arm.Agreement = slices.DeleteFunc(slices.Clone(arm.Agreement), func(a Agreement) bool { return !finite(a.Share) })
		arm.Times = finiteTimes(arm.Times)
		arm.Runs = finiteSpeeds(arm.Runs)
	}
	return r
}

// finiteSpeeds returns a copy of runs in which speeds that are not finite are 0.
func finiteSpeeds(runs []Run) []Run {
	runs = slices.Clone(runs)
	for i := range runs {
		if !finite(runs[i].Speed) {
			runs[i].Speed = 0
		}
	}
	return runs
}

// finiteDifference returns d if all its numbers are finite, and otherwise nil.
func finiteDifference(d *Difference) *Difference {
	if d == nil {
		return nil
	}
	values := append([]float64{d.Mean, d.SD, d.P, d.CI95[0], d.CI95[1], d.CI90[0], d.CI90[1], d.Level, d.Smallest}, d.Pairs...)
	if slices.ContainsFunc(values, func(v float64) bool { return !finite(v) }) {
		return nil
	}
	return d
}

// finiteTimes returns t if all its times are finite and their sum is positive, and otherwise nil.
func finiteTimes(t *record.Times) *record.Times {
	if t == nil || !finite(t.Seconds) || t.Seconds <= 0 {
		return nil
	}
	for _, seconds := range t.Families {
		if !finite(seconds) {
			return nil
		}
	}
	return t
}
