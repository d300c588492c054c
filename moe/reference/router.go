package reference

import (
	"cmp"
	"math"
	"slices"
)

// router scores the experts of each token and chooses TopK of them. x: [tokens, hidden]; logits:
// [tokens, experts]; weights and chosen: [tokens, TopK].
//
//	scores  = sigmoid or softmax of x·wᵀ
//	chosen  = top-k of scores + bias, in the best groups of experts
//	weights = scores of the chosen / their sum · scale
func (f *formula) router(path string, x *node) (logits, weights *node, chosen []int) {
	w := f.param(path + ".weight")
	if f.RouterFP32 {
		x, w = f.cast(x, FP32), f.cast(w, FP32)
	}
	logits = f.linear(x, w, nil)
	scores := f.scores(logits)
	choice := f.choiceScores(path, scores)
	own := f.choose(choice)
	chosen = own
	if replayed := f.replayed(path); replayed != nil {
		chosen = replayed
	}
	f.note("logits", logits.data, f.Experts)
	f.note("scores", scores.data, f.Experts)
	f.note("choice", choice, f.Experts)
	f.note("indices", floats(own), f.TopK)
	weights = f.gather(scores, chosen, f.TopK)
	if f.NormTopK {
		sum := f.sum(weights)
		if !f.Softmax {
			sum = f.shift(sum, 1e-20)
		}
		weights = f.mul(weights, f.reciprocal(sum))
	}
	if f.RouteScale != 1 {
		weights = f.scale(weights, f.RouteScale)
	}
	if !f.RouterFP32 {
		weights = f.cast(weights, logits.dtype)
	}
	return logits, weights, chosen
}

func (f *formula) reciprocal(x *node) *node {
	return f.apply(x, func(x float64) float64 { return 1 / x }, func(_, y float64) float64 { return -y * y })
}

// scores returns what the logits stand for, in FP32.
func (f *formula) scores(logits *node) *node {
	if f.Softmax {
		return f.softmax(f.cast(logits, FP32))
	}
	return f.sigmoid(logits)
}

// choiceScores returns the scores by which experts are chosen.
func (f *formula) choiceScores(path string, scores *node) []float64 {
	choice := slices.Clone(scores.data)
	if f.SelectionBias {
		for i, b := range f.buffer(path + ".e_score_correction_bias") {
			for r := range scores.rows {
				choice[r*f.Experts+i] += b
			}
		}
	}
	return choice
}

// choose returns the TopK experts of each token. Of several groups, only the experts of the best
// ones count: those with the largest score, or the largest sum of two.
func (f *formula) choose(choice []float64) (chosen []int) {
	size := f.Experts / f.Groups
	var groups []float64
	for r := range len(choice) / f.Experts {
		row := slices.Clone(choice[r*f.Experts : (r+1)*f.Experts])
		if f.Groups > 1 {
			best := make([]float64, f.Groups)
			for g := range best {
				best[g] = f.groupScore(row[g*size : (g+1)*size])
			}
			groups = append(groups, best...)
			kept := largest(best, f.TopKGroups)
			for e := range row {
				if !slices.Contains(kept, e/size) {
					row[e] = math.Inf(-1)
				}
			}
		}
		chosen = append(chosen, largest(row, f.TopK)...)
	}
	if groups != nil {
		f.note("groups", groups, f.Groups)
	}
	return chosen
}

func (f *formula) groupScore(scores []float64) float64 {
	best := largest(scores, min(2, len(scores)))
	if f.GroupMax || len(best) < 2 {
		return scores[best[0]]
	}
	return scores[best[0]] + scores[best[1]]
}

// largest returns the places of the k largest values, the largest first.
func largest(values []float64, k int) []int {
	order := span(0, len(values))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	return order[:k]
}
