package referee

import (
	"math"
	"slices"
)

// A comparison holds a tensor of the run against the exact reference, in units of its floor: what
// rounding alone costs. The floor is the largest of three roundings of the same module.

// Comparison is the verdict on one tensor.
type Comparison struct {
	What string `json:"what"` // output, grad_input, gradient, choice
	Name string `json:"name"`

	// Error and Floor are of the median row, or of the whole tensor if Rows is 1. Both are relative
	// to the reference. A row is a token, or an output channel of a weight.
	Rows       int     `json:"rows"`
	Error      float64 `json:"error"`
	Floor      float64 `json:"floor"`
	Worst      float64 `json:"worst"`
	WorstFloor float64 `json:"worst_floor"`
	Far        int     `json:"far"` // rows beyond three times the floor's worst row

	Statistic  string  `json:"statistic"`  // the one with the largest strain
	Strain     float64 `json:"strain"`     // that statistic by its threshold: above 1 is wrong
	Resolution float64 `json:"resolution"` // the smallest relative error that would have been seen

	// The tensor is Factor times the reference, by least squares; Rest is what remains, as Error.
	Factor float64 `json:"factor"`
	Rest   float64 `json:"rest"`
	// Factor of the roundings is within 1 ± FactorFloor.
	FactorFloor float64 `json:"factor_floor"`
	Scaled      bool    `json:"scaled,omitempty"` // Factor explains the error: Rest is at the floor

	Tokens []int  `json:"tokens,omitempty"` // the worst rows of a wrong tensor
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

	biasOfFloor  = 0.3
	biasOfFactor = 6
)

// A row whose norm is below leastNorm of the median norm is held against that. Channels above
// outlierFactor of the median channel are judged apart from the others.
const (
	leastNorm     = 0.01
	outlierFactor = 20
)

// operand is a tensor as rows, with the parts of its columns that are judged apart.
type operand struct {
	data  []float64
	width int
}

func (o operand) row(i int) []float64 { return o.data[i*o.width : (i+1)*o.width] }

// compareRows compares row by row. floors are the same tensor under the three roundings, least the
// smallest relative error of a row that storage in the run's format explains. Rows for which skip
// holds are padding.
func compareRows(what, name string, got, want []float64, floors [][]float64, rows int, least float64, skip func(row int) bool) Comparison {
	c := Comparison{What: what, Name: name, Rows: rows, Factor: 1}
	if len(want) == 0 || rows == 0 {
		return c
	}
	width := len(want) / rows
	var live []int
	for r := range rows {
		if skip == nil || !skip(r) {
			live = append(live, r)
		}
	}
	for _, columns := range channelParts(want, rows, width, live) {
		part := compareColumns(got, want, floors, width, live, columns, least)
		part.What, part.Name, part.Rows = what, name, len(live)
		if c.Statistic == "" || !(part.Strain <= c.Strain) {
			c = part
		}
	}
	c.fit(got, want, floors)
	// A bias of all elements shows in the factor long before it shows in the error.
	if bias := math.Abs(c.Factor-1) / max(biasOfFloor*c.Floor, biasOfFactor*c.FactorFloor); len(want) >= 1024 && c.Floor > 5e-4 && c.Strain <= 1 && bias > c.Strain {
		c.Statistic, c.Strain = "factor", bias
	}
	return c
}

// channelParts returns the columns as one part, or outliers and the others as two.
func channelParts(want []float64, rows, width int, live []int) [][]int {
	squares := make([]float64, width)
	for _, r := range live {
		for i, x := range want[r*width : (r+1)*width] {
			squares[i] += x * x
		}
	}
	middle := median(squares)
	all, ordinary, outliers := make([]int, width), []int{}, []int{}
	for i, s := range squares {
		all[i] = i
		if s > outlierFactor*outlierFactor*middle && middle > 0 {
			outliers = append(outliers, i)
		} else {
			ordinary = append(ordinary, i)
		}
	}
	if len(outliers) == 0 || len(ordinary) == 0 {
		return [][]int{all}
	}
	return [][]int{ordinary, outliers}
}

func compareColumns(got, want []float64, floors [][]float64, width int, live, columns []int, least float64) Comparison {
	norms := make([]float64, len(live))
	for i, r := range live {
		norms[i] = normOf(want[r*width:(r+1)*width], columns)
	}
	filled := slices.DeleteFunc(slices.Clone(norms), func(x float64) bool { return x == 0 })
	least0 := leastNorm * median(filled)
	errors := func(x []float64) []float64 {
		all := make([]float64, 0, len(live))
		for i, r := range live {
			d := distance(x[r*width:(r+1)*width], want[r*width:(r+1)*width], columns)
			if norms[i] == 0 && d == 0 {
				continue // a row that nothing reached, as most rows of an embedding's gradient
			}
			all = append(all, d/max(norms[i], least0, math.SmallestNonzeroFloat64))
		}
		return all
	}
	observed := errors(got)
	c := Comparison{Factor: 1}
	c.Floor, c.WorstFloor = least, 2*least
	for _, f := range floors {
		e := errors(f)
		c.Floor = max(c.Floor, median(e))
		if len(e) > 0 {
			c.WorstFloor = max(c.WorstFloor, slices.Max(e))
		}
	}
	if len(observed) == 0 {
		c.Statistic, c.Resolution = "median", medianBound*c.Floor
		return c
	}
	c.Error, c.Worst = median(observed), worstOf(observed)
	scale := fluctuation(len(columns) * len(observed))
	c.Statistic, c.Strain = "median", c.Error/(medianBound*scale*c.Floor)
	if s := c.Worst / (worstBound * fluctuation(len(columns)) * c.WorstFloor); !(s <= c.Strain) {
		c.Statistic, c.Strain = "worst", s
	}
	c.Resolution = medianBound * scale * c.Floor
	c.rank(got, want, width, live, columns, max(least0, math.SmallestNonzeroFloat64))
	return c
}

// rank counts the rows far out, and lists the worst ones.
func (c *Comparison) rank(got, want []float64, width int, live, columns []int, least float64) {
	type far struct {
		row   int
		error float64
	}
	var all []far
	for _, r := range live {
		g, w := got[r*width:(r+1)*width], want[r*width:(r+1)*width]
		e := distance(g, w, columns) / max(normOf(w, columns), least)
		if !(e <= worstBound*c.WorstFloor) {
			c.Far++
		}
		all = append(all, far{r, e})
	}
	if !c.Wrong() {
		return
	}
	slices.SortStableFunc(all, func(a, b far) int {
		switch {
		case a.error > b.error || a.error != a.error:
			return -1
		case a.error < b.error:
			return 1
		}
		return 0
	})
	for _, f := range all[:min(8, len(all))] {
		c.Tokens = append(c.Tokens, f.row)
	}
}

// compareWhole compares the norms of whole tensors: gradients of parameters. Weights of enough rows
// are also compared row by row, because one wrong head or expert vanishes in the norm.
func compareWhole(what, name string, got, want []float64, floors [][]float64, rows int, least float64) Comparison {
	c := Comparison{What: what, Name: name, Rows: rows, Factor: 1, Statistic: "whole"}
	all := normOf(want, nil)
	noise := least * all
	for _, f := range floors {
		noise = max(noise, distance(f, want, nil))
	}
	d := distance(got, want, nil)
	unit := max(all, math.SmallestNonzeroFloat64)
	c.Error, c.Floor = d/unit, noise/unit
	c.Worst, c.WorstFloor = c.Error, c.Floor
	bound := wholeBound * fluctuation(len(want))
	switch {
	case d == 0:
	case noise == 0:
		c.Strain = math.Inf(1)
	default:
		c.Strain = d / (bound * noise)
	}
	c.Resolution = bound * c.Floor
	if rows >= 8 && len(want)/rows >= 8 {
		byRow := compareRows(what, name, got, want, floors, rows, least, nil)
		if !(byRow.Strain <= max(1, c.Strain)) {
			c.Statistic, c.Strain, c.Worst, c.WorstFloor, c.Far, c.Tokens = "row "+byRow.Statistic, byRow.Strain, byRow.Worst, byRow.WorstFloor, byRow.Far, byRow.Tokens
		}
	}
	c.fit(got, want, floors)
	return c
}

// fit finds the factor that the tensor is of the reference.
func (c *Comparison) fit(got, want []float64, floors [][]float64) {
	gw, ww, gg := dot(got, want), dot(want, want), dot(got, got)
	if ww == 0 {
		return
	}
	for _, f := range floors {
		c.FactorFloor = max(c.FactorFloor, math.Abs(dot(f, want)/ww-1))
	}
	c.Factor = gw / ww
	c.Rest = math.Sqrt(max(0, gg-gw*gw/ww) / ww)
	if c.Factor != 0 {
		c.Rest /= math.Abs(c.Factor)
	}
	if gg == 0 {
		c.Factor, c.Rest, c.Scaled = 0, 0, true
		return
	}
	c.Scaled = c.Wrong() && c.Statistic != "factor" && c.Rest <= max(wholeBound*c.Floor, c.WorstFloor)
}

// fluctuation widens a threshold for statistics of few numbers: the ratio of two noises of n
// elements is itself uncertain.
func fluctuation(n int) float64 { return 1 + 4/math.Sqrt(float64(max(n, 1))) }

// normOf is the norm of the given elements; nil stands for all.
func normOf(x []float64, at []int) float64 {
	var sum float64
	if at == nil || len(at) == len(x) {
		for _, v := range x {
			sum += v * v
		}
		return math.Sqrt(sum)
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

// median returns the upper median; 0 of nothing. NaNs count as largest.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sorted := slices.Clone(x)
	for i, v := range sorted {
		if v != v {
			sorted[i] = math.Inf(1)
		}
	}
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// worstOf returns the largest, where a NaN is infinite.
func worstOf(x []float64) (worst float64) {
	for _, v := range x {
		if v != v {
			return math.Inf(1)
		}
		worst = max(worst, v)
	}
	return worst
}
