package design

// Simulated studies: the chances of each verdict.

import (
	"math"
	"math/rand/v2"
)

// Scatter describes how the paired differences of the two losses vary from seed to seed.
type Scatter struct {
	Train, HeldOut float64 // standard deviations, fractions of the baseline's loss
	Correlation    float64 // between the two losses
	Pairs          int     // that these were estimated from; 0: they are exact
}

// Effect is a true mean difference of each loss, as a fraction of the baseline's.
type Effect struct{ Train, HeldOut float64 }

// Chances are the shares of simulated studies with each verdict.
type Chances struct {
	Equivalent, Different, Undecided float64
	Seeds                            float64 // mean number of seeds that a study takes
}

// The seeds of simulations, which are repeatable. Designs are tested on other studies than those
// that their bounds come from.
const (
	seedOfBounds  = 1
	seedOfStudies = 2
)

// Simulate judges a number of made-up studies with normally distributed differences. If the scatter
// is an estimate, each study draws its own true scatter from what the estimate allows.
func (d Design) Simulate(scatter Scatter, effect Effect, studies int) (c Chances) {
	pairs := newGenerator(scatter, effect)
	var tests []critical
	for _, look := range d.Looks {
		tests = append(tests, d.critical(look.Seeds))
	}
	for range studies {
		verdict, seeds := d.study(pairs, tests)
		c.Seeds += float64(seeds)
		*c.of(verdict)++
	}
	for _, sum := range []*float64{&c.Equivalent, &c.Different, &c.Undecided, &c.Seeds} {
		*sum /= float64(studies)
	}
	return c
}

func (c *Chances) of(verdict string) *float64 {
	switch verdict {
	case Equivalent:
		return &c.Equivalent
	case Different:
		return &c.Different
	}
	return &c.Undecided
}

// study simulates one study up to its first verdict.
func (d Design) study(pairs *generator, tests []critical) (verdict string, seeds int) {
	pairs.begin()
	var train, heldOut moments
	for i, look := range d.Looks {
		for ; seeds < look.Seeds; seeds++ {
			a, b := pairs.next()
			train.add(a)
			heldOut.add(b)
		}
		if verdict = d.judge(tests[i], train.sample(), heldOut.sample()); verdict != Undecided {
			break
		}
	}
	return verdict, seeds
}

// moments accumulates a mean and a variance (Welford, Technometrics 4, 1962).
type moments struct {
	n             int
	mean, squares float64
}

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / float64(m.n)
	m.squares += d * (x - m.mean)
}

func (m *moments) sample() Sample {
	if m.n < 2 {
		return Sample{m.n, m.mean, 0}
	}
	return Sample{m.n, m.mean, math.Sqrt(m.squares / float64(m.n-1))}
}

// generator draws pairs of a study.
type generator struct {
	random  *rand.Rand
	scatter Scatter
	effect  Effect
	scale   float64 // true over estimated standard deviation of this study
}

func newGenerator(scatter Scatter, effect Effect) *generator {
	return &generator{rand.New(rand.NewPCG(seedOfStudies, 0)), scatter, effect, 1}
}

// begin draws the true scatter of a study: the estimated variance times df/χ².
func (g *generator) begin() {
	if df := g.scatter.Pairs - 1; df > 0 {
		g.scale = math.Sqrt(float64(df) / chiSquared(g.random, df))
	}
}

func (g *generator) next() (train, heldOut float64) {
	a, b, r := g.random.NormFloat64(), g.random.NormFloat64(), g.scatter.Correlation
	b = r*a + math.Sqrt(1-r*r)*b
	return g.effect.Train + g.scale*g.scatter.Train*a, g.effect.HeldOut + g.scale*g.scatter.HeldOut*b
}
