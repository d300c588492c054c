package report

// A result as it is drawn and written: free of numbers that JSON lacks, which a run that diverged
// may leave.

import (
	"slices"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
	"spmoe/launcher/report/figure"
)

// cleaned returns a copy of a result in which differences that are not finite, like those of a
// diverged run, are absent, and other such numbers 0.
func cleaned(r convergence.Result) convergence.Result {
	zero := func(v *float64) {
		if !figure.Finite(*v) {
			*v = 0
		}
	}
	zero(&r.Margin)
	for _, spread := range []*convergence.Spread{&r.Spread.Train, &r.Spread.HeldOut} {
		zero(&spread.Mean)
		zero(&spread.SD)
	}
	r.Arms = slices.Clone(r.Arms)
	for i := range r.Arms {
		arm := &r.Arms[i]
		arm.Train, arm.HeldOut = whole(arm.Train), whole(arm.HeldOut)
		zero(&arm.Speed)
		arm.Agreement = slices.DeleteFunc(slices.Clone(arm.Agreement), func(a convergence.Agreement) bool { return !figure.Finite(a.Share) })
		arm.Times = wholeTimes(arm.Times)
		arm.Runs = slices.Clone(arm.Runs)
		for j := range arm.Runs {
			zero(&arm.Runs[j].Speed)
		}
	}
	return r
}

// whole returns d if all of it is finite, and otherwise nil.
func whole(d *convergence.Difference) *convergence.Difference {
	if d == nil {
		return nil
	}
	values := append([]float64{d.Mean, d.SD, d.P, d.CI95[0], d.CI95[1], d.CI90[0], d.CI90[1]}, d.Pairs...)
	if slices.ContainsFunc(values, func(v float64) bool { return !figure.Finite(v) }) {
		return nil
	}
	return d
}

// wholeTimes returns t if it can be shown, and otherwise nil.
func wholeTimes(t *record.Times) *record.Times {
	if t == nil || !figure.Finite(t.Seconds) || t.Seconds <= 0 {
		return nil
	}
	for _, seconds := range t.Families {
		if !figure.Finite(seconds) {
			return nil
		}
	}
	return t
}
