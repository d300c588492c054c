package referee

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// The regret of a choice is how far the worst chosen expert's score lies below that of the best one
// that was left out. Rounding excuses a regret of a few times what it does to the token's scores.

// regret compares the recorded choices of a router with the scores of its recorded input. With
// groups it judges the groups first, and then the experts inside them.
func (t *trial) regret(exact outcome, floors []outcome, rows []int) (c Comparison, ok bool) {
	name := t.module.Choice() + ".indices"
	chosen, recorded := t.call.Given(name)
	scores, has := exact[t.module.Choice()+".choice"]
	table := t.module.Kind == reference.Router && t.judge.folder.Model.Hash(t.module.Layer)
	if table { // the choice is no matter of scores
		scores, has = exact[name]
	}
	if t.module.Choice() == "" || !recorded || !has {
		return c, false
	}
	chosen = chosen.Rows(rows, t.tokens)
	tokens, experts := scores.Dims[0], scores.Dims[1]
	c = Comparison{What: "choice", Name: name + t.repeat.Suffix(), Rows: tokens, Statistic: "regret", Factor: 1}
	k, live := len(chosen.Data)/tokens, t.live(rows)
	strains := make([]float64, tokens)
	for token := range tokens {
		if live != nil && !slices.Contains(live, token) {
			continue
		}
		picks := make([]int, k)
		regret, noise := 0.0, 1.0
		for i, e := range chosen.Data[token*k : (token+1)*k] {
			if picks[i] = int(e); t.module.ChoosesKeys() || table {
				continue
			}
			if e < 0 || int(e) >= experts || slices.Contains(picks[:i], int(e)) {
				regret = inf
				c.Note = fmt.Sprintf("token %d has experts %v: %d different ones below %d are expected", token, picks, k, experts)
			}
		}
		switch {
		case t.module.ChoosesKeys():
			regret, noise = t.keyRegret(exact, floors, token, picks)
		case table:
			noise = tiny
			named := scores.Data[token*experts : (token+1)*experts]
			if !slices.Equal(slices.Sorted(slices.Values(named)), slices.Sorted(slices.Values(chosen.Data[token*k:(token+1)*k]))) {
				regret = inf
				c.Note = fmt.Sprintf("token %d has experts %v: tid2eid names %v", token, picks, named)
			}
		case regret == 0:
			regret, noise = t.regretOf(exact, floors, token, picks)
		}
		c.Error, c.Floor = max(c.Error, regret), max(c.Floor, noise)
		if regret > 0 {
			strains[token] = regret / (regretBound * noise)
		}
	}
	c.Worst, c.WorstFloor, c.Resolution = c.Error, c.Floor, regretBound*c.Floor
	for _, token := range descending(strains) {
		if c.Strain = max(c.Strain, strains[token]); strains[token] <= 1 {
			break
		}
		if c.Far++; c.Far <= 8 {
			c.Tokens = append(c.Tokens, token)
		}
	}
	return c, true
}

// rowOf returns the scores of a token.
func (t *trial) rowOf(o outcome, name string, token int) []float64 {
	x := o[t.module.Choice()+"."+name]
	if len(x.Dims) < 2 {
		return nil
	}
	return x.Data[token*x.Dims[1] : (token+1)*x.Dims[1]]
}

// moved returns how far rounding moves the scores of a token.
func (t *trial) moved(exact outcome, floors []outcome, name string, token int) float64 {
	most := math.SmallestNonzeroFloat64
	for i, w := range t.rowOf(exact, name, token) {
		if math.IsInf(w, 0) { // a key that the token does not see
			continue
		}
		most = max(most, math.Abs(w)*(1.0/(1<<23)))
		for _, f := range floors {
			if d := math.Abs(t.rowOf(f, name, token)[i] - w); !math.IsInf(d, 0) {
				most = max(most, d)
			}
		}
	}
	return most
}

// keyRegret returns the regret of one token's keys, and the rounding of its scores. Keys that the
// token does not see do not count, but entries that it does not see are wrong. The number of the
// others must be that of the reference.
func (t *trial) keyRegret(exact outcome, floors []outcome, token int, picks []int) (regret, noise float64) {
	worst, best, visible, chosen, picked := inf, -inf, 0, 0, map[int]bool{}
	for _, key := range picks {
		picked[key] = true
	}
	for key, s := range t.rowOf(exact, "choice", token) {
		switch {
		case math.IsInf(s, -1):
			continue
		case picked[key]:
			worst = min(worst, s)
			chosen++
		default:
			best = max(best, s)
		}
		visible++
	}
	entries := 0 // DeepSeek-V4 has -1 where a token sees no further entry
	for _, key := range picks {
		if key >= 0 && t.judge.folder.Model.Streams > 0 {
			entries++
		}
	}
	if own := exact[t.module.Choice()+".indices"]; chosen != min(visible, own.Dims[1]) || entries > chosen {
		return inf, 1
	}
	return max(best-worst, 0), t.moved(exact, floors, "choice", token)
}

// regretOf returns the regret of one token's experts, and the rounding of its scores.
func (t *trial) regretOf(exact outcome, floors []outcome, token int, picks []int) (regret, noise float64) {
	rowOf := func(o outcome, name string) []float64 { return t.rowOf(o, name, token) }
	moved := func(name string) float64 { return t.moved(exact, floors, name, token) }
	noise = moved("choice")
	worse := func(r, n float64) {
		if r > 0 && r/n > regret/noise {
			regret, noise = r, n
		}
	}
	scores, groups := rowOf(exact, "choice"), rowOf(exact, "groups")
	open := t.judge.folder.Model.TopKGroups
	used := map[int]bool{}
	size := len(scores) / max(len(groups), 1)
	if kept := exact[t.module.Path+".open"]; len(kept.Data) > 0 { // a mistake may have others
		open = int(kept.Data[0])
	}
	limited := len(groups) > 1 && open > 0
	if limited {
		order := descending(groups)
		for _, e := range picks {
			used[e/size] = true
		}
		if len(used) > open {
			return inf, 1
		}
		for g := range used {
			worse(groups[order[open-1]]-groups[g], moved("groups"))
		}
		for _, g := range order { // the run's other groups are unknown: the best ones
			if len(used) < open {
				used[g] = true
			}
		}
	}
	worst, best := inf, -inf
	for e, s := range scores {
		if slices.Contains(picks, e) {
			worst = min(worst, s)
		} else if !limited || used[e/size] {
			best = max(best, s)
		}
	}
	worse(best-worst, moved("choice"))
	return regret, noise
}

// A gradient is a sum of parts: of micro-batches, of the tokens of each rank. Its coefficients on
// them, by least squares, show which part was lost, doubled or not averaged.

// part is a share of a gradient: the local reference gradient of some tokens.
type part struct {
	name   string // "micro-batch 2", "dp rank 1"
	axis   string // "micro-batches", "dp"
	values []float64
}

// solve returns the coefficients a that minimize ‖y - Σ a·parts‖, and that distance by ‖y‖. Parts
// that do not differ leave nothing to solve for: ok is false.
func solve(y []float64, parts [][]float64) (a []float64, rest float64, ok bool) {
	n := len(parts)
	matrix := make([][]float64, n)
	for i := range matrix {
		for k := range parts {
			matrix[i] = append(matrix[i], dot(parts[i], parts[k]))
		}
		matrix[i] = append(matrix[i], dot(parts[i], y))
	}
	for i := range matrix { // it is positive: no pivots are needed
		if !(matrix[i][i] > 1e-9*dot(parts[i], parts[i])) {
			return nil, 0, false
		}
		for r := range matrix {
			f := matrix[r][i] / matrix[i][i]
			for k := i; k <= n && r != i; k++ {
				matrix[r][k] -= f * matrix[i][k]
			}
		}
	}
	left := slices.Clone(y)
	for i := range n {
		a = append(a, matrix[i][n]/matrix[i][i])
		for k, p := range parts[i] {
			left[k] -= a[i] * p
		}
	}
	return a, normOf(left, nil) / max(normOf(y, nil), tiny), true
}

func dot(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// describeParts says in words which sum of parts a wrong tensor is. It is "" if it is none, or all
// of them times the same factor, which is said elsewhere. Coefficients may be off by a tolerance.
func describeParts(y []float64, parts []part, c Comparison, tolerance float64) string {
	var values [][]float64
	for _, p := range parts {
		values = append(values, p.values)
	}
	a, rest, ok := solve(y, values)
	if !ok || !c.within(rest) {
		return ""
	}
	near := func(x, y float64) bool { return math.Abs(x-y) <= max(0.02, tolerance)*max(1, math.Abs(y)) }
	if !slices.ContainsFunc(a, func(x float64) bool { return !near(x, a[0]) }) {
		return ""
	}
	var kept, lost, terms []string
	for i, p := range parts {
		switch {
		case near(a[i], 0):
			lost = append(lost, p.name)
		case near(a[i], 1):
			kept = append(kept, p.name)
		default:
			terms = append(terms, fmt.Sprintf("%s × %s", p.name, factorText(a[i])))
		}
	}
	if len(terms) == 0 && parts[0].axis != "" {
		return fmt.Sprintf("it is the gradient of %s alone: the sum over %s was not done", strings.Join(kept, " and "), parts[0].axis)
	}
	text := "it is " + strings.Join(append(terms, kept...), " + ")
	if len(lost) > 0 {
		text += ", without " + strings.Join(lost, " and ")
	}
	return text
}

// factorText writes a factor as people would: 2, 1/8, 0.731.
func factorText(x float64) string {
	for n := 2; n <= 1024; n++ {
		if (n <= 16 || n%8 == 0) && math.Abs(x*float64(n)-1) < 0.001 {
			return fmt.Sprintf("1/%d", n)
		}
	}
	for digits := 1; digits < 4; digits++ {
		y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
		if math.Abs(y/x-1) < 0.001 || y == x {
			return strconv.FormatFloat(y, 'f', -1, 64)
		}
	}
	return fmt.Sprintf("%.4g", x)
}

// percent writes a relative error.
func percent(x float64) string {
	switch {
	case x == 0:
		return "0"
	case !(x < 1e4):
		return "more than 10,000 times"
	case x >= 2:
		return fmt.Sprintf("%.3g times", x)
	case x >= 0.1:
		return fmt.Sprintf("%.0f %%", 100*x)
	case x >= 1e-3:
		return fmt.Sprintf("%.2g %%", 100*x)
	}
	return fmt.Sprintf("%.1e", x)
}

// descending returns the positions of x, the largest first.
func descending(x []float64) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[b], x[a]) })
	return order
}

// indexKL is the kind of an indexer's loss in step.json. Its stage is sparse or warmup.
const indexKL = "index_kl"

// indexLoss returns what step.json says of the loss of indexers.
func (j *judge) indexLoss() (loss step.Auxiliary) {
	for _, a := range j.folder.Info.Auxiliary {
		if a.Kind == indexKL {
			loss = a
		}
	}
	return loss
}

// routerLosses returns the auxiliary losses of routers.
func (j *judge) routerLosses() []step.Auxiliary {
	all := slices.Clone(j.folder.Info.Auxiliary)
	return slices.DeleteFunc(all, func(a step.Auxiliary) bool { return a.Kind == indexKL })
}
