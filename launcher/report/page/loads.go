package page

// The map of the load of each expert over the steps.

import (
	"fmt"
	"math"
	"slices"
)

// experts is the section of what the experts do.
const experts = "Experts"

// Limits of the map. Where there are more experts, a row is the mean of several.
const (
	heatColumns = 80
	heatRows    = 160
	layerRows   = 32
)

// thin keeps at most about n elements, among them the last.
func thin[T any](list []T, n int) (some []T) {
	every := (len(list) + n - 1) / n
	for i, x := range list {
		if (len(list)-1-i)%every == 0 {
			some = append(some, x)
		}
	}
	return some
}

// loads is the map of each expert's share of tokens to the mean of its layer: one row per expert,
// one column per recorded step.
func (r Run) loads() (Chart, bool) {
	shares := map[[2]int][]float64{} // by layer and step
	var steps, layers []int
	count := 0
	for _, l := range r.Log.Loads {
		if len(l.Tokens) > 0 {
			shares[[2]int{l.Layer, l.Step}], count = relativeLoads(l.Tokens), max(count, len(l.Tokens))
			steps, layers = append(steps, l.Step), append(layers, l.Layer)
		}
	}
	if count == 0 {
		return Chart{}, false
	}
	slices.Sort(steps)
	slices.Sort(layers)
	steps, layers = thin(slices.Compact(steps), heatColumns), slices.Compact(layers)
	chart := Chart{
		ID: "loads", Title: "Tokens of each expert", Kind: Heat, X: Axis{Name: "step"},
		Caption: "One row per expert, one column per recorded step; white is the mean of the layer, " +
			"blue a quarter of it or less, orange four times the mean or more. " +
			"Rows that stay orange are overloaded experts; rows that stay blue are experts that hardly learn.",
	}
	group := (count + layerRows - 1) / layerRows
	rows := (count + group - 1) / group
	if most := max(1, heatRows/rows); len(layers) > most {
		chart.Caption += fmt.Sprintf(" Of %d layers, %d are shown.", len(layers), len(thin(layers, most)))
		layers = thin(layers, most)
	}
	if group > 1 {
		chart.Caption += fmt.Sprintf(" A row is the mean of %d experts.", group)
	}
	chart.Cells = &HeatMap{Most: 4}
	for _, step := range steps {
		chart.Cells.Steps = append(chart.Cells.Steps, float64(step))
	}
	for _, layer := range layers {
		chart.Cells.Groups = append(chart.Cells.Groups, fmt.Sprintf("layer %d", layer))
		for row := range rows {
			name := fmt.Sprintf("layer %d, expert %d", layer, row*group)
			if group > 1 {
				name += fmt.Sprintf(" to %d", min((row+1)*group, count)-1)
			}
			line := make(Values, len(steps))
			for i, step := range steps {
				line[i] = math.Round(1e4*mean(shares[[2]int{layer, step}], row*group, (row+1)*group)) / 1e4
			}
			chart.Cells.Rows, chart.Cells.Values = append(chart.Cells.Rows, name), append(chart.Cells.Values, line)
		}
	}
	return chart, true
}

// relativeLoads divides the tokens of experts by their mean.
func relativeLoads(tokens []int64) []float64 {
	var all int64
	for _, n := range tokens {
		all += n
	}
	shares := make([]float64, len(tokens))
	for i, n := range tokens {
		shares[i] = float64(n) * float64(len(tokens)) / float64(max(all, 1))
	}
	return shares
}

// mean averages some values. It is NaN if there are none.
func mean(values []float64, from, to int) float64 {
	sum, n := 0.0, 0.0
	for _, v := range values[min(from, len(values)):min(to, len(values))] {
		sum, n = sum+v, n+1
	}
	return sum / n
}
