package referee

import (
	"fmt"
	"math"
	"slices"

	"spmoe/moe/reference"
)

// The regret of a choice is how far the worst chosen expert's score lies below that of the best one
// that was left out. Rounding excuses a regret of a few times what it does to the token's scores.

var inf = math.Inf(1)

// regret compares the recorded choices of a router with the scores of its recorded input. With
// groups it judges the groups first, and then the experts inside them.
func (t *trial) regret(exact outcome, floors []outcome, rows []int) (c Comparison, ok bool) {
	chosen, recorded := t.call.Choices[t.module.Path+".indices"]
	scores, has := exact.extra["choice"]
	if t.module.Kind != reference.Router || !recorded || !has || len(scores.Dims) != 2 {
		return c, false
	}
	chosen = rowsOf(chosen, t.tokens, rows)
	tokens, experts := scores.Dims[0], scores.Dims[1]
	name := t.module.Path + ".indices" + t.repeat.Suffix()
	c = Comparison{What: "choice", Name: name, Rows: tokens, Statistic: "regret", Factor: 1}
	if len(chosen.Data) == 0 || len(chosen.Data)%tokens != 0 {
		return Comparison{What: "choice", Name: name, Statistic: "shape", Strain: inf, Note: fmt.Sprintf("it has shape %v for %d tokens", chosen.Dims, tokens)}, true
	}
	k, skip := len(chosen.Data)/tokens, t.padding(rows)
	type far struct {
		token  int
		strain float64
	}
	var all []far
	for token := range tokens {
		if skip != nil && skip(token) {
			continue
		}
		picks := make([]int, k)
		valid := true
		for i, e := range chosen.Data[token*k : (token+1)*k] {
			picks[i] = int(e)
			valid = valid && e >= 0 && int(e) < experts && !slices.Contains(picks[:i], int(e))
		}
		regret, noise := inf, 1.0
		if valid {
			regret, noise = t.regretOf(exact, floors, token, picks)
		} else {
			c.Note = fmt.Sprintf("token %d has experts %v: %d different ones below %d are expected", token, picks, k, experts)
		}
		c.Error, c.Floor = max(c.Error, regret), max(c.Floor, noise)
		if regret > 0 {
			all = append(all, far{token, regret / (regretBound * noise)})
		}
	}
	for _, f := range all {
		c.Strain = max(c.Strain, f.strain)
		if f.strain > 1 {
			c.Far++
		}
	}
	c.Worst, c.WorstFloor, c.Resolution = c.Error, c.Floor, regretBound*c.Floor
	slices.SortStableFunc(all, func(a, b far) int { return -compareFloat(a.strain, b.strain) })
	for _, f := range all[:min(8, len(all))] {
		if f.strain > 1 {
			c.Tokens = append(c.Tokens, f.token)
		}
	}
	return c, true
}

// regretOf returns the regret of one token's experts, and the rounding of its scores.
func (t *trial) regretOf(exact outcome, floors []outcome, token int, picks []int) (regret, noise float64) {
	scores := rowOf(exact.extra["choice"], token)
	noise = moved(exact, floors, "choice", token)
	allowed := func(int) bool { return true }
	if groups := exact.extra["groups"]; len(groups.Dims) == 2 && groups.Dims[1] > 1 {
		ranks := rowOf(groups, token)
		size, open := len(scores)/len(ranks), t.openGroups
		order := descending(ranks)
		used := map[int]bool{}
		for _, e := range picks {
			used[e/size] = true
		}
		groupNoise := moved(exact, floors, "groups", token)
		if open > 0 && open < len(ranks) {
			bar := ranks[order[open-1]]
			for g := range used {
				if r := bar - ranks[g]; r > 0 && r/groupNoise > regret/noise {
					regret, noise = r, groupNoise
				}
			}
			for _, g := range order { // the run's other groups are unknown: the best ones
				if len(used) < open {
					used[g] = true
				}
			}
			if len(used) > open { // more groups than allowed: each but the best is a regret
				return inf, 1
			}
			allowed = func(e int) bool { return used[e/size] }
		}
	}
	worst, best := inf, -inf
	for e, s := range scores {
		if slices.Contains(picks, e) {
			worst = min(worst, s)
		} else if allowed(e) {
			best = max(best, s)
		}
	}
	if r, n := best-worst, moved(exact, floors, "choice", token); r > 0 && r/n > regret/noise {
		regret, noise = r, n
	}
	return regret, noise
}

// moved is how far rounding moves the scores of a token.
func moved(exact outcome, floors []outcome, name string, token int) float64 {
	want := rowOf(exact.extra[name], token)
	noise := 0.0
	for _, w := range want {
		noise = max(noise, math.Abs(w)*(1.0/(1<<23)))
	}
	for _, f := range floors {
		for i, x := range rowOf(f.extra[name], token) {
			if d := math.Abs(x - want[i]); d > noise && !math.IsInf(d, 0) {
				noise = d
			}
		}
	}
	return max(noise, math.SmallestNonzeroFloat64)
}

func rowOf(t reference.Tensor, row int) []float64 {
	width := t.Dims[1]
	return t.Data[row*width : (row+1)*width]
}

// descending returns the positions of x, the largest first.
func descending(x []float64) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return -compareFloat(x[a], x[b]) })
	return order
}

// compareFloat orders numbers, with NaN above all.
func compareFloat(a, b float64) int {
	switch {
	case a != a && b == b, a > b:
		return 1
	case b != b && a == a, a < b:
		return -1
	}
	return 0
}
