package referee

import (
	"math"
	"slices"
)

var inf = math.Inf(1)

// A comparison holds a tensor of the run against the exact reference, in units of its floor: what
// rounding alone costs. The floor is the largest of several roundings of the same module.

// Comparison is the verdict on one tensor.
type Comparison struct {
	What string `json:"what"` // output, grad_input, grad_logits, gradient, choice
	Name string `json:"name"`

	// Error and Floor are of the median row, or of a whole weight. They are relative to the
	// reference. A row is a token, or an output channel of a weight.
	Rows       int     `json:"rows"`
	Error      float64 `json:"error"`
	Floor      float64 `json:"floor"`
	Worst      float64 `json:"worst"` // of a row
	WorstFloor float64 `json:"worst_floor"`
	Far        int     `json:"far"` // rows beyond three times WorstFloor

	Statistic  string  `json:"statistic"`  // the one with the largest strain
	Strain     float64 `json:"strain"`     // that statistic by its threshold: above 1 is wrong
	Resolution float64 `json:"resolution"` // the smallest relative error that would have been seen

	// The tensor is Factor times the reference by least squares. That of the roundings is within
	// FactorFloor of 1. Rest is the error that remains. Scaled: the factor explains the error.
	Factor      float64 `json:"factor"`
	FactorFloor float64 `json:"factor_floor"`
	Rest        float64 `json:"rest"`
	Scaled      bool    `json:"scaled,omitempty"`

	Tokens []int  `json:"tokens,omitempty"` // the worst rows of a wrong tensor
	far    []int  // all rows of it that are far off
	Note   string `json:"note,omitempty"`
}

// Wrong reports whether a statistic is beyond its threshold. A NaN is.
func (c *Comparison) Wrong() bool { return !(c.Strain <= 1) }

// The thresholds, as multiples of the floor's own statistic.
const (
	medianBound = 2.5
	worstBound  = 3
	wholeBound  = 2.5
	regretBound = 4

	// A bias of all elements, as multiples of the floor and of the floor's own bias.
	biasOfFloor  = 0.35
	biasOfFactor = 7
)

// A row whose norm is below leastNorm of the median norm is held against that. It is leastGradient
// for a gradient: one that nearly cancels is as noisy as its terms. Channels above outlierFactor of
// the median channel are judged apart from the others.
const (
	leastNorm     = 0.01
	leastGradient = 0.25
	outlierFactor = 20
)

// tiny keeps a division from zero.
const tiny = math.SmallestNonzeroFloat64

// tensorPair is a tensor of the run with its reference, exact and under the roundings.
type tensorPair struct {
	got, want []float64
	floors    [][]float64
	rows      int
	least     float64 // the smallest relative error that storage explains
	summed    float64 // what storing the parts of a sum adds to all other errors
}

// compareRows judges the median row, rows that are far off, and a bias of all elements. Outlier
// channels and the others are judged apart.
func (p tensorPair) compareRows(what, name string) Comparison {
	best := Comparison{What: what, Name: name, Rows: p.rows, Factor: 1}
	if len(p.want) == 0 || p.rows == 0 {
		return best
	}
	for _, columns := range p.channels() {
		c := Comparison{What: what, Name: name, Rows: p.rows, Factor: 1}
		if p.judgeRows(&c, columns); best.Statistic == "" || !(c.Strain <= best.Strain) {
			best = c
		}
	}
	best.Tokens, best.Far = best.far[:min(8, len(best.far))], len(best.far)
	p.fit(&best)
	bias := math.Abs(best.Factor-1) / max(biasOfFloor*best.Floor, biasOfFactor*best.FactorFloor)
	if len(p.want) >= 1024 && best.Floor > 5e-4 && best.Strain <= 1 && bias > best.Strain {
		best.Statistic, best.Strain = "factor", bias
	}
	return best
}

// channels returns the columns as one part, or the outliers and the others as two.
func (p tensorPair) channels() [][]int {
	squares := make([]float64, len(p.want)/p.rows)
	for i, x := range p.want {
		squares[i%len(squares)] += x * x
	}
	bar := outlierFactor * outlierFactor * median(squares)
	var ordinary, outliers []int
	for i, s := range squares {
		if s > bar && bar > 0 {
			outliers = append(outliers, i)
		} else {
			ordinary = append(ordinary, i)
		}
	}
	if len(outliers) == 0 {
		return [][]int{ordinary}
	}
	return [][]int{ordinary, outliers}
}

func (p tensorPair) judgeRows(c *Comparison, columns []int) {
	width := len(p.want) / p.rows
	row := func(x []float64, r int) []float64 { return x[r*width : (r+1)*width] }
	var norms, filled []float64
	for r := range p.rows {
		norms = append(norms, normOf(row(p.want, r), columns))
		if norms[len(norms)-1] > 0 {
			filled = append(filled, norms[len(norms)-1])
		}
	}
	unit := leastNorm
	if c.What != "output" {
		unit = leastGradient
	}
	unit = max(unit*median(filled), tiny)
	var seen []int
	errors := func(x []float64) (all []float64) {
		seen = seen[:0]
		for r := range p.rows {
			// A row that nothing reached is none, as most rows of an embedding's gradient.
			d := distance(row(x, r), row(p.want, r), columns)
			if d != d {
				d = inf
			}
			if norms[r] > 0 || d != 0 {
				all, seen = append(all, d/max(norms[r], unit)), append(seen, r)
			}
		}
		return all
	}
	c.Floor, c.WorstFloor = p.least, 2*p.least
	if p.least < 1e-6 {
		c.WorstFloor = 5 * p.least // other orders of FP32 sums, with cancellation
	}
	for _, f := range p.floors {
		e := errors(f)
		c.Floor = max(c.Floor, median(e))
		c.WorstFloor = slices.Max(append(e, c.WorstFloor))
	}
	observed := errors(p.got)
	c.Error, c.Worst = median(observed), slices.Max(append(observed, 0))
	c.Resolution = medianBound * fluctuation(len(columns)*len(observed)) * c.Floor
	c.Statistic, c.Strain = "median", c.Error/max(c.Resolution, tiny)
	far := worstBound * fluctuation(len(columns)) * c.WorstFloor
	if s := c.Worst / max(far, tiny); !(s <= c.Strain) {
		c.Statistic, c.Strain = "worst", s
	}
	if !c.Wrong() {
		return
	}
	for _, at := range descending(observed) {
		if observed[at] <= far {
			break
		}
		c.far = append(c.far, seen[at])
	}
}

// compareWhole judges the norm of the difference of a whole weight's gradient. Weights of enough
// rows are also judged row by row, because one wrong head vanishes in the norm.
func (p tensorPair) compareWhole(what, name string) Comparison {
	c := Comparison{What: what, Name: name, Rows: p.rows, Statistic: "whole", Factor: 1}
	all := normOf(p.want, nil)
	noise := p.least * all
	for _, f := range p.floors {
		noise = max(noise, distance(f, p.want, nil))
	}
	noise = math.Hypot(noise, p.summed*all)
	d := distance(p.got, p.want, nil)
	c.Error, c.Floor = d/max(all, tiny), noise/max(all, tiny)
	c.Worst, c.WorstFloor = c.Error, c.Floor
	c.Resolution = wholeBound * fluctuation(len(p.want)) * c.Floor
	if d > 0 {
		c.Strain = c.Error / max(c.Resolution, tiny)
	}
	p.fit(&c)
	if p.rows >= 8 && len(p.want)/p.rows >= 8 {
		if r := p.compareRows(what, name); !(r.Strain <= max(1, c.Strain)) && r.Statistic != "factor" {
			r.Error, r.Floor, r.Statistic = c.Error, c.Floor, "row "+r.Statistic // of the whole
			c = r
			p.fit(&c)
		}
	}
	return c
}

// fit finds the factor that the tensor is of the reference.
func (p tensorPair) fit(c *Comparison) {
	gw, ww, gg := dot(p.got, p.want), dot(p.want, p.want), dot(p.got, p.got)
	if ww == 0 {
		return
	}
	for _, f := range p.floors {
		c.FactorFloor = max(c.FactorFloor, math.Abs(dot(f, p.want)/ww-1))
	}
	c.Factor = gw / ww
	c.Rest = math.Sqrt(max(0, gg-gw*gw/ww)/ww) / max(math.Abs(c.Factor), tiny)
	if gg == 0 {
		c.Factor, c.Rest = 0, 0
	}
	c.Scaled = c.Wrong() && c.within(c.Rest)
}

// within reports whether an error is one that rounding explains.
func (c *Comparison) within(rest float64) bool { return rest <= max(wholeBound*c.Floor, c.WorstFloor) }

// forgive takes a factor that is no fault of this tensor out of its error.
func (c *Comparison) forgive() {
	c.Error = c.Rest
	c.Worst = c.Rest
	c.Strain = min(1, c.Rest/max(wholeBound*c.Floor, tiny))
	c.Scaled, c.Factor, c.Tokens, c.Far = false, 1, nil, 0
}

// fluctuation widens a threshold for statistics of few numbers: the ratio of two noises of n
// elements is itself uncertain.
func fluctuation(n int) float64 { return 1 + 4/math.Sqrt(float64(max(n, 1))) }

// normOf is the norm of the given elements; nil stands for all.
func normOf(x []float64, at []int) float64 {
	var sum float64
	if at == nil || len(at) == len(x) {
		return math.Sqrt(dot(x, x))
	}
	for _, i := range at {
		sum += x[i] * x[i]
	}
	return math.Sqrt(sum)
}

func distance(x, y []float64, at []int) float64 {
	var sum float64
	if at == nil || len(at) == len(x) {
		for i, v := range x {
			sum += (v - y[i]) * (v - y[i])
		}
		return math.Sqrt(sum)
	}
	for _, i := range at {
		sum += (x[i] - y[i]) * (x[i] - y[i])
	}
	return math.Sqrt(sum)
}

// median returns the upper median; 0 of nothing.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(x))
	return sorted[len(sorted)/2]
}
