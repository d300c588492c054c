package convergence

// The difference of a recipe from the baseline, split into a part through numbers and a part
// through routes.
//
// Each seed has four runs: the numbers of the baseline or of the recipe, on the routes of the
// baseline or of the recipe. They are the cells of a 2x2 factorial design.

import (
	"slices"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
)

// Decomposition splits an arm's difference from the baseline. It has one run per seed of the arm.
type Decomposition struct {
	Numbers []Run  `json:"recipe_on_baseline_routes"`
	Routes  []Run  `json:"baseline_on_recipe_routes"`
	Parts   []Part `json:"parts,omitempty"` // as in the plan; none if a run diverged
}

// Part is a part of an arm's difference, as a fraction of the baseline's loss with its own routes.
// Its intervals hold for both losses and all looks together, one part at a time.
type Part struct {
	Name    string      `json:"name"`
	Train   *Difference `json:"train"`
	HeldOut *Difference `json:"held_out"`
}

// contrast is a weighted sum of the losses of four runs.
type contrast struct {
	name    string
	weights [4]float64 // of the cells
}

// cells are the four runs, in the order of the weights: numbers on routes.
var cells = [4]string{"baseline on baseline", "recipe on baseline", "baseline on recipe", "recipe on recipe"}

// contrasts returns the parts. "numbers" and "routes" are the means of both orders, and add up to
// the whole difference. What foreign routes cost in both crossed runs cancels in these means, and
// makes the interaction negative.
func contrasts() []contrast {
	return []contrast{
		{"numbers", [4]float64{-0.5, 0.5, -0.5, 0.5}},
		{"routes", [4]float64{-0.5, -0.5, 0.5, 0.5}},
		{"numbers, baseline's routes", [4]float64{-1, 1, 0, 0}},
		{"numbers, recipe's routes", [4]float64{0, 0, -1, 1}},
		{"routes, baseline's numbers", [4]float64{-1, 0, 1, 0}},
		{"routes, recipe's numbers", [4]float64{0, -1, 0, 1}},
		{"interaction", [4]float64{1, -1, -1, 1}},
	}
}

// plannedParts returns what a plan says of the parts.
func plannedParts() parts {
	p := parts{Cells: cells[:]}
	for _, part := range contrasts() {
		p.Names, p.Weights = append(p.Names, part.name), append(p.Weights, part.weights)
	}
	return p
}

// decompose returns the decomposition of an arm, or nil if the comparison has none.
func (c *Comparison) decompose(a Arm, baseline Arm, tasks []task, logs []*record.Log) *Decomposition {
	if !c.Decompose || a.Ablation {
		return nil
	}
	d := &Decomposition{Numbers: c.runsOf(a.Name+"@"+baseline.Name, tasks, logs), Routes: c.runsOf(baseline.Name+"@"+a.Name, tasks, logs)}
	runs := [4][]Run{baseline.Runs[:len(a.Runs)], d.Numbers, d.Routes, a.Runs}
	if slices.ContainsFunc(slices.Concat(runs[:]...), func(r Run) bool { return r.Diverged }) {
		return d
	}
	for _, part := range contrasts() {
		d.Parts = append(d.Parts, Part{part.name, part.of(runs, trainLoss, c.Design), part.of(runs, heldOutLoss, c.Design)})
	}
	return d
}

// Parts returns the whole difference and its parts. It returns nil if there is no decomposition.
func (a Arm) Parts() []Part {
	if a.Decomposition == nil || a.Decomposition.Parts == nil {
		return nil
	}
	return append([]Part{{"total", a.Train, a.HeldOut}}, a.Decomposition.Parts...)
}

// of returns the contrast of a loss, seed by seed.
func (p contrast) of(runs [4][]Run, loss func(Run) float64, d design.Design) *Difference {
	pairs := make([]float64, len(runs[0]))
	for i := range pairs {
		for cell, weight := range p.weights {
			pairs[i] += weight * loss(runs[cell][i])
		}
		pairs[i] /= loss(runs[0][i])
	}
	return differenceOf(pairs, d)
}
