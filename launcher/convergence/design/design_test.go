package design

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// measured is the scatter of bench/results/convergence/debug-20-seeds.
var measured = Scatter{Train: 0.0034, HeldOut: 0.0041, Correlation: 0.66}

// The whole procedure, all looks and both losses, keeps its type-I errors both ways: it says
// equivalent if a loss differs by the margin, or different if none differs, in at most 5 % of
// studies. The limit has two standard errors of the simulation on top.
func TestTypeIError(t *testing.T) {
	const margin, studies = 0.005, 20000
	limit := Alpha + 2*math.Sqrt(Alpha*(1-Alpha)/studies)
	scatters := map[string]Scatter{
		"measured": measured, "one loss decides": {0.002, 1e-6, 0, 0}, "wide": {0.01, 0.01, 0.97, 0}, "estimated": {0.0034, 0.0041, 0.66, 4},
	}
	for _, d := range []Design{Fixed(margin, 3), Fixed(margin, 14), Sequential(margin, 7), Sequential(margin, 40)} {
		for name, s := range scatters {
			for _, e := range []Effect{{margin, 0}, {0, -margin}, {margin, margin}} {
				if c := d.Simulate(s, e, studies); c.Equivalent > limit {
					t.Errorf("%d seeds, %s, %+v: %.4f are equivalent", d.Seeds(), name, e, c.Equivalent)
				}
			}
			if c := d.Simulate(s, Effect{}, studies); c.Different > limit {
				t.Errorf("%d seeds, %s, no difference: %.4f are different", d.Seeds(), name, c.Different)
			}
		}
	}
}

// Tests spend what they may: with one loss that decides, equivalence errs in 4 to 5 % of studies.
func TestTypeIErrorIsSpent(t *testing.T) {
	for _, d := range []Design{Fixed(0.005, 14), Sequential(0.005, 40)} {
		if c := d.Simulate(Scatter{0.004, 1e-9, 0, 0}, Effect{0.005, 0}, 20000); c.Equivalent < 0.04 {
			t.Errorf("%d looks: %.4f", len(d.Looks), c.Equivalent)
		}
	}
}

// Lan and DeMets, Biometrika 70, 1983, table 1: even spending of a one-sided 2.5 % over five looks
// at a known variance. The nominal levels of t-tests with many seeds are those of normal ones.
func TestPublishedBounds(t *testing.T) {
	looks := []int{60, 120, 180, 240, 300}
	levels := spend(looks, nullPaths(looks), 0.025, 1, 1)
	for i, want := range []float64{2.58, 2.49, 2.41, 2.34, 2.28} {
		if got := distuv.UnitNormal.Quantile(1 - levels[i]); math.Abs(got-want) > 0.05 {
			t.Errorf("look %d: %.3f, want %.3f", i+1, got, want)
		}
	}
}

func TestLooks(t *testing.T) {
	for seeds, want := range map[int]string{
		1: "[1]", 2: "[2]", 5: "[5]", 7: "[5 6 7]", 16: "[6 8 10 12 14 16]", 20: "[6 9 12 15 18 20]", 40: "[5 10 15 20 25 30 35 40]",
	} {
		d := Sequential(0.005, seeds)
		var at []int
		for _, look := range d.Looks {
			at = append(at, look.Seeds)
		}
		if got := fmt.Sprint(at); got != want || d.Seeds() != seeds {
			t.Errorf("%d seeds: looks after %s, want %s", seeds, got, want)
		}
	}
	d := Sequential(0.005, 40)
	if look, last := d.At(10); look != d.Looks[1] || last {
		t.Errorf("look after 10 seeds: %+v, last %v", look, last)
	}
	if look, last := d.At(40); look != d.Looks[7] || !last {
		t.Errorf("look after 40 seeds: %+v, last %v", look, last)
	}
	if look, last := d.At(11); look != Fixed(0.005, 11).Looks[0] || !last {
		t.Errorf("no look after 11 seeds: %+v, last %v", look, last)
	}
}

func TestJudge(t *testing.T) {
	sample := func(pairs int, percent, sd float64) Sample { return Sample{pairs, percent / 100, sd / 100} }
	small := sample(10, 0.01, 0.2)
	fixed, sequential := Fixed(0.005, 10), Sequential(0.005, 40)
	for name, c := range map[string]struct {
		design         Design
		train, heldOut Sample
		want           string
	}{
		"both small":                       {fixed, small, small, Equivalent},
		"training higher":                  {fixed, sample(10, 1, 0.2), small, Different},
		"held-out higher":                  {fixed, small, sample(10, 1, 0.2), Different},
		"held-out lower":                   {fixed, small, sample(10, -1, 0.2), Different},
		"held-out scattered":               {fixed, small, sample(10, 0.01, 2), Undecided},
		"training scattered":               {fixed, sample(10, 0.01, 2), small, Undecided},
		"small but real":                   {fixed, sample(10, 0.2, 0.05), small, Equivalent},
		"real, near the margin":            {fixed, sample(10, 0.45, 0.2), small, Different},
		"real, near the margin, not last":  {sequential, sample(10, 0.45, 0.2), small, Undecided},
		"real, beyond the margin, an end":  {sequential, sample(10, 0.8, 0.2), small, Different},
		"small, an early end":              {sequential, small, small, Equivalent},
		"passes a fixed look, not this":    {sequential, sample(10, 0.3, 0.25), small, Undecided},
		"passes a fixed look":              {fixed, sample(10, 0.3, 0.25), small, Equivalent},
		"the same bits":                    {fixed, sample(10, 0, 0), sample(10, 0, 0), Equivalent},
		"the same difference, no scatter":  {fixed, sample(10, 3, 0), sample(10, 3, 0), Different},
		"one loss needs half of the level": {fixed, sample(10, 0.30, 0.39), sample(10, 0, 1), Undecided}, // p = 0.038
	} {
		if got := c.design.Judge(10, c.train, c.heldOut); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := Fixed(0.005, 1).Judge(1, Sample{1, 0, 0}, Sample{1, 0, 0}); got != Undecided {
		t.Errorf("one pair: %s", got)
	}
}

// A verdict is what the intervals say: equivalent if those of the tests lie inside the margin.
func TestVerdictIsOfIntervals(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	d := Sequential(0.005, 20)
	for range 2000 {
		look := d.Looks[random.IntN(len(d.Looks))]
		s := Sample{look.Seeds, 0.01 * random.NormFloat64(), 0.01 * random.Float64()}
		ci := s.Interval(look.Equivalence)
		inside, rejected := ci[0] > -d.Margin && ci[1] < d.Margin, s.P(d.Margin) < look.Equivalence
		if equivalent := d.Judge(look.Seeds, s, s) == Equivalent; equivalent != inside || equivalent != rejected {
			t.Errorf("%+v: %v, interval %v, test %v", s, equivalent, inside, rejected)
		}
	}
}

func TestPower(t *testing.T) {
	chances := FixedChances(0.005, measured, 40)
	if chances[0] != 0 || chances[1] != 0 || chances[3] > 0.15 || chances[40] < 0.999 {
		t.Errorf("chances %v", chances)
	}
	seeds, ok := SeedsFor(0.8, 0.005, measured, 40)
	if !ok || chances[seeds] < 0.8 || chances[seeds-1] >= 0.8 {
		t.Errorf("%d seeds, %v", seeds, ok)
	}
	direct := Fixed(0.005, seeds).Simulate(measured, Effect{}, 20000)
	if math.Abs(direct.Equivalent-chances[seeds]) > 0.02 {
		t.Errorf("%d seeds: chance %.3f, simulated by itself %.3f", seeds, chances[seeds], direct.Equivalent)
	}
	// A scatter that is known from few pairs may be larger: more seeds are needed.
	few := measured
	few.Pairs = 4
	if more, _ := SeedsFor(0.8, 0.005, few, 200); more <= seeds {
		t.Errorf("known from 4 pairs: %d seeds, known: %d", more, seeds)
	}
	// The losses are alike: which of them scatters makes no difference.
	for _, pairs := range []int{0, 4} {
		train := FixedChances(0.005, Scatter{Train: 0.004, HeldOut: 1e-9, Pairs: pairs}, 10)[10]
		heldOut := FixedChances(0.005, Scatter{Train: 1e-9, HeldOut: 0.004, Pairs: pairs}, 10)[10]
		if math.Abs(train-heldOut) > 0.03 || train > 0.99 {
			t.Errorf("scatter of training loss known from %d pairs: %.3f, of validation loss: %.3f", pairs, train, heldOut)
		}
	}
	if n, ok := SeedsFor(0.8, 0.005, Scatter{Train: 0.1, HeldOut: 0.1}, 20); ok || n != 20 {
		t.Errorf("hopeless: %d, %v", n, ok)
	}
	// The default of compare decides within its seeds, and stops long before the last.
	c := Sequential(0.005, 40).Simulate(measured, Effect{}, 20000)
	if c.Equivalent < 0.95 || c.Seeds > 20 || math.Abs(c.Equivalent+c.Different+c.Undecided-1) > 1e-9 {
		t.Errorf("%+v", c)
	}
}
