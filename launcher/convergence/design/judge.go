package design

// Verdicts on samples of paired differences.

import "math"

// Verdicts of a comparison.
const (
	Equivalent = "equivalent" // every loss differs by less than the margin
	Different  = "different"  // some loss differs from the baseline's, and not all are equivalent
	Undecided  = "undecided"  // neither is shown
)

// Sample describes the paired differences of one loss, as fractions of the baseline's.
type Sample struct {
	Pairs int
	Mean  float64
	SD    float64 // 0 for one pair
}

// Interval returns the interval of the mean, Student's t, with a probability of tail beyond each
// end. It has no width if there is no scatter or only one pair.
func (s Sample) Interval(tail float64) [2]float64 {
	if s.Pairs < 2 || s.SD == 0 {
		return [2]float64{s.Mean, s.Mean}
	}
	half := student(s.Pairs).Quantile(1-tail) * s.error()
	return [2]float64{s.Mean - half, s.Mean + half}
}

// P returns the larger p of two one-sided t-tests (Schuirmann, J. Pharmacokinet. Biopharm. 15,
// 1987): that the mean is above -margin, and that it is below margin. For a single pair it is 1.
func (s Sample) P(margin float64) float64 {
	switch inside := math.Abs(s.Mean) < margin; {
	case s.Pairs < 2 || !inside && s.SD == 0:
		return 1
	case s.SD == 0:
		return 0
	}
	// The test against the nearer bound has the larger p.
	return student(s.Pairs).CDF((math.Abs(s.Mean) - margin) / s.error())
}

// error returns the standard error of the mean.
func (s Sample) error() float64 { return s.SD / math.Sqrt(float64(s.Pairs)) }

func student(pairs int) StudentsT { return StudentsT(pairs - 1) }

// critical holds the critical values of t of the tests at a look.
type critical struct {
	equivalence, difference float64
	last                    bool
}

func (d Design) critical(seeds int) critical {
	look, last := d.At(seeds)
	if seeds < 2 {
		return critical{math.Inf(1), math.Inf(1), last}
	}
	t := student(seeds)
	return critical{t.Quantile(1 - look.Equivalence), t.Quantile(1 - look.Difference/2), last}
}

// Judge returns the verdict after a number of seeds on samples of that many pairs, one per loss.
//
// Equivalence goes first: a difference may be real and yet within the margin. Before the last look,
// a difference ends the comparison only if its mean lies outside the margin, because otherwise more
// seeds may show equivalence.
func (d Design) Judge(seeds int, losses ...Sample) string {
	return d.judge(d.critical(seeds), losses...)
}

func (d Design) judge(at critical, losses ...Sample) string {
	equivalent, different := true, false
	for _, s := range losses {
		mean, e := math.Abs(s.Mean), s.error()
		equivalent = equivalent && s.Pairs > 1 && mean+at.equivalence*e < d.Margin
		different = different || s.Pairs > 1 && mean > at.difference*e && (at.last || mean >= d.Margin)
	}
	switch {
	case equivalent:
		return Equivalent
	case different:
		return Different
	}
	return Undecided
}
