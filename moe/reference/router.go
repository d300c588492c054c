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
	logits = f.linear(f.flow(x, "router_input_detached"), w, nil)
	if f.is("router_low_precision") {
		BF16.roundAll(logits.data)
	}
	scores := f.scores(logits)
	own := f.choose(path, scores)
	if chosen = f.replayed(path); chosen == nil {
		chosen = own
	}
	f.note("logits", logits.data, f.Experts)
	f.note("scores", scores.data, f.Experts)
	if f.is("router_softmax_of_chosen") {
		return logits, f.softmax(f.chosen(f.cast(logits, FP32), chosen)), chosen
	}
	return logits, f.routeWeights(path, logits, scores, chosen), chosen
}

// chosen returns the columns of each token's chosen experts.
func (f *formula) chosen(x *node, chosen []int) *node {
	return f.take(x, x.rows, f.TopK, func(r, i int) int { return r*x.cols + chosen[r*f.TopK+i] })
}

// scores returns what the logits stand for.
func (f *formula) scores(logits *node) *node {
	if f.Softmax != f.is("router_other_score") {
		return f.softmax(f.cast(logits, FP32))
	}
	if !f.RouterFP32 {
		logits = f.cast(logits, FP32)
	}
	return f.sigmoid(logits) // BF16 under autocast
}

// routeWeights returns the weights of the chosen experts.
func (f *formula) routeWeights(path string, logits, scores *node, chosen []int) *node {
	if f.is("router_bias_in_weights") && f.SelectionBias {
		scores = f.add(scores, f.param(path+".e_score_correction_bias"), 1)
	}
	y := f.chosen(scores, chosen)
	scale := pick(f, map[string]float64{"router_scale_missing": 1, "router_scale_twice": f.RouteScale * f.RouteScale}, f.RouteScale)
	switch {
	case f.is("router_scale_before_norm") && f.NormTopK:
		scale = 1
	case f.is("router_weights_uniform"):
		y = f.shift(f.scale(y, 0), 1)
	case f.is("router_weights_rotated"):
		y = f.columns(y, append(span(1, f.TopK), 0))
	}
	if f.NormTopK != f.is("router_other_norm") {
		sum := f.sum(y)
		if f.is("router_norm_over_all") {
			sum = f.sum(scores)
		}
		if !f.Softmax {
			sum = f.shift(sum, 1e-20)
		}
		y = f.mul(y, f.reciprocal(f.flow(sum, "router_norm_detached")))
	}
	if scale != 1 {
		y = f.scale(y, scale)
	}
	if !f.RouterFP32 {
		y = f.cast(y, logits.dtype)
	}
	return f.flow(y, "router_detached")
}

// choose returns the TopK experts of each token by their scores and the selection bias. Of several
// groups, only the experts of the best ones count.
func (f *formula) choose(path string, scores *node) (chosen []int) {
	choice := slices.Clone(scores.data)
	if f.SelectionBias && !f.is("router_no_bias") {
		bias := f.param(path + ".e_score_correction_bias").data
		sign := pick(f, map[string]float64{"router_bias_negative": -1}, 1)
		for i := range choice {
			choice[i] += sign * bias[i%f.Experts]
		}
	}
	f.note("choice", slices.Clone(choice), f.Experts)
	if f.Groups > 1 && !f.is("router_groups_ignored") {
		f.keepGroups(choice, scores)
	}
	if f.is("router_choice_lowest") { // those outside the groups are lowest of all
		for i, score := range choice {
			choice[i] = min(-score, 10)
		}
		f.note("choice", slices.Clone(choice), f.Experts)
		delete(f.pass.Extra, "groups")
	}
	for r := range scores.rows {
		chosen = append(chosen, largest(choice[r*f.Experts:(r+1)*f.Experts], f.TopK)...)
	}
	indices := make([]float64, len(chosen))
	for i, e := range chosen {
		indices[i] = float64(e)
	}
	f.note("indices", indices, f.TopK)
	return chosen
}

// keepGroups sets the choice scores outside each token's best groups to -Inf. The score of a group
// is its largest, or the sum of its largest two.
func (f *formula) keepGroups(choice []float64, scores *node) {
	size := f.Experts / f.Groups
	two := min(2, size)
	if f.GroupMax != f.is("router_other_group_score") {
		two = 1
	}
	from := choice
	if f.is("router_groups_without_bias") {
		from = scores.data
	}
	groups := make([]float64, 0, scores.rows*f.Groups)
	for at := 0; at < len(choice); at += size {
		score := 0.0
		for _, e := range largest(from[at:at+size], two) {
			score += from[at+e]
		}
		groups = append(groups, score)
	}
	for r := range scores.rows {
		kept := largest(groups[r*f.Groups:(r+1)*f.Groups], f.TopKGroups)
		for e := range f.Experts {
			if !slices.Contains(kept, e/size) {
				choice[r*f.Experts+e] = math.Inf(-1)
			}
		}
	}
	f.note("groups", groups, f.Groups)
}

// largest returns the places of the k largest values, the largest first.
func largest(values []float64, k int) []int {
	order := span(0, len(values))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	return order[:k]
}
