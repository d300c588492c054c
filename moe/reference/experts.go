package reference

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// router scores the experts of each token and chooses TopK of them. x: [tokens, hidden]; logits:
// [tokens, experts]; weights and chosen: [tokens, TopK].
//
//	scores  = sigmoid or softmax of x·wᵀ
//	chosen  = top-k of scores + bias, in the best groups of experts
//	weights = scores of the chosen / their sum · scale
func (f *formula) router(path string, x *node) []*node {
	w := f.param(path + ".weight")
	if f.RouterFP32 {
		x, w = f.cast(x, FP32), f.cast(w, FP32)
	}
	logits := f.linear(f.flow(x, "router_input_detached"), w, nil)
	if f.is("router_low_precision") || f.format(path+".logits") == BF16 {
		BF16.roundAll(logits.data)
	}
	scores := f.scores(logits)
	own := f.ownChoice(path, scores)
	chosen := f.choices(path+".indices", f.Experts)
	if chosen == nil {
		chosen = own
	}
	f.chosen[path] = chosen
	if f.is("router_softmax_of_chosen") || f.is("router_softmax_of_chosen_scaled") {
		by := pick(f, map[string]float64{"router_softmax_of_chosen_scaled": f.RouteScale}, 1)
		return []*node{logits, f.scale(f.softmax(f.ofChosen(f.cast(logits, FP32), chosen)), by)}
	}
	return []*node{logits, f.routeWeights(path, logits, scores, chosen)}
}

// ofChosen returns the columns of each token's chosen experts.
func (f *formula) ofChosen(x *node, chosen []int) *node {
	return f.take(x, x.rows, f.TopK, func(r, i int) int { return r*x.cols + chosen[r*f.TopK+i] })
}

// scores returns what the logits stand for.
func (f *formula) scores(logits *node) *node {
	switch {
	case f.Streams > 0 && f.is("router_scores_softmax"):
		return f.cast(f.softmax(logits), logits.dtype)
	case f.Streams > 0 && !f.is("router_scores_sigmoid"): // √log(1 + exp(x))
		soft := f.apply(logits, func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, func(x, _ float64) float64 { return sigmoid(x) })
		return f.apply(soft, math.Sqrt, func(_, y float64) float64 { return 0.5 / y })
	case f.Streams == 0 && f.Softmax != f.is("router_other_score"):
		return f.softmax(f.cast(logits, FP32))
	}
	if !f.RouterFP32 && f.Streams == 0 {
		logits = f.cast(logits, FP32)
	}
	return f.sigmoid(logits) // BF16 under autocast
}

// routeWeights returns the weights of the chosen experts.
func (f *formula) routeWeights(path string, logits, scores *node, chosen []int) *node {
	if f.is("router_bias_in_weights") && f.SelectionBias && !f.Hash(f.layer) {
		scores = f.add(scores, f.param(path+".e_score_correction_bias"), 1)
	}
	y := f.ofChosen(scores, chosen)
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
		} else if x := y; f.is("router_norm_by_largest") {
			sum = f.take(x, x.rows, 1, func(r, _ int) int { return r*x.cols + largest(x.row(r), 1)[0] })
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

// ownChoice returns the experts of each token: by their scores, or in some layers of DeepSeek-V4 by
// a table of tokens, which may name an expert twice.
func (f *formula) ownChoice(path string, scores *node) (chosen []int) {
	if !f.Hash(f.layer) {
		return f.choose(path, scores)
	}
	var indices []float64
	table := f.param(path + ".tid2eid")
	for _, r := range f.tokens() {
		id := int(f.call.Batch.IDs[r])
		if id < 0 || id >= table.rows {
			f.fail("token %d is outside the vocabulary of %d", id, table.rows)
			return make([]int, scores.rows*f.TopK)
		}
		indices = append(indices, table.row(id)...)
	}
	for _, e := range indices {
		if e < 0 || int(e) >= f.Experts {
			f.fail("%s.tid2eid names expert %g of %d", path, e, f.Experts)
			e = 0
		}
		chosen = append(chosen, int(e))
	}
	f.note(path+".indices", indices, f.TopK)
	return chosen
}

// choose returns the TopK experts of each token by their scores and the selection bias. Of several
// groups, only the experts of the best ones count.
func (f *formula) choose(path string, scores *node) (chosen []int) {
	choice := slices.Clone(scores.data)
	if f.SelectionBias && !f.is("router_no_bias") {
		bias := f.param(path + ".e_score_correction_bias").data
		sign := pick(f, map[string]float64{"router_bias_negative": -1, "router_bias_twice": 2}, 1)
		for i := range choice {
			choice[i] += sign * bias[i%f.Experts]
		}
	}
	scored := slices.Clone(choice)
	f.note(path+".choice", scored, f.Experts)
	if f.Groups > 1 && !f.is("router_groups_ignored") {
		f.keepGroups(path, choice, scores)
	}
	if f.is("router_choice_lowest") { // those outside the groups are lowest of all
		for i, score := range choice {
			choice[i] = min(-score, 10)
		}
		f.note(path+".choice", slices.Clone(choice), f.Experts)
		delete(f.results, path+".groups")
	}
	for r := range scores.rows {
		if at := r * f.Experts; f.is("router_best_skipped") {
			at += largest(choice[at:at+f.Experts], 1)[0]
			choice[at], scored[at] = math.Inf(-1), -10
		}
		chosen = append(chosen, largest(choice[r*f.Experts:(r+1)*f.Experts], f.TopK)...)
	}
	indices := make([]float64, len(chosen))
	for i, e := range chosen {
		indices[i] = float64(e)
	}
	f.note(path+".indices", indices, f.TopK)
	return chosen
}

// keepGroups sets the choice scores outside each token's best groups to -Inf. The score of a group
// is its largest, or the sum of its largest two.
func (f *formula) keepGroups(path string, choice []float64, scores *node) {
	size := f.Experts / f.Groups
	two := min(2, size)
	if f.GroupMax != f.is("router_other_group_score") {
		two = 1
	}
	two = pick(f, map[string]int{"router_groups_by_sum": size}, two)
	open := pick(f, map[string]int{"router_one_group_fewer": max(f.TopKGroups-1, 1), "router_one_group_more": min(f.TopKGroups+1, f.Groups)}, f.TopKGroups)
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
		kept := largest(groups[r*f.Groups:(r+1)*f.Groups], open)
		for e := range f.Experts {
			if !slices.Contains(kept, e/size) {
				choice[r*f.Experts+e] = math.Inf(-1)
			}
		}
	}
	f.note(path+".groups", groups, f.Groups)
	f.note(path+".open", []float64{float64(open)}, 1)
}

// largest returns the places of the k largest values, the largest first.
func largest(values []float64, k int) []int {
	order := span(0, len(values))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	return order[:k]
}

// experts is Σ weight · expert(x) over the chosen experts of each token. x: [tokens, hidden];
// weights: [tokens, TopK].
func (f *formula) experts(path string, x, weights *node) *node {
	x = f.flow(x, "experts_input_detached")
	weights = f.flow(weights, "experts_weight_detached")
	var parts []*node
	var tokens [][]int
	for e, slots := range f.dispatch(path) {
		if len(slots) == 0 {
			continue
		}
		rows := make([]int, len(slots))
		for i, slot := range slots {
			rows[i] = slot / f.TopK
		}
		place := pick(f, map[string]int{"experts_weight_of_first": f.TopK}, 1)
		w := f.take(weights, len(slots), 1, func(r, _ int) int { return slots[r] / place * place })
		in := f.rowsOf(x, rows)
		if f.is("experts_weight_on_input") {
			in = f.mul(in, w)
		}
		own := fmt.Sprintf("%s.%d", path, f.expert(e))
		y := f.expertMLP(own, in, nil)
		switch {
		case f.is("experts_weight_on_gate"):
			y = f.expertMLP(own, in, w)
		case f.is("experts_weight_missing") || f.is("experts_weight_on_input"):
		case f.is("experts_weight_squared"):
			y = f.mul(f.mul(y, w), w)
		case f.is("experts_weights_equal"), f.is("experts_weights_equal_scaled"):
			y = f.scale(y, pick(f, map[string]float64{"experts_weights_equal_scaled": f.RouteScale}, 1)/float64(f.TopK))
		case f.is("experts_mean"):
			y = f.scale(f.mul(y, w), 1/float64(f.TopK))
		default:
			y = f.mul(y, w)
		}
		parts, tokens = append(parts, y), append(tokens, rows)
	}
	return f.sumRows(parts, tokens, x)
}

// expertMLP is down(silu(gate(x)) · up(x)). The gate may be scaled.
func (f *formula) expertMLP(path string, x, scale *node) *node {
	gate, up := f.project(path+".gate_proj", x), f.project(path+".up_proj", x)
	if f.is("gate_up_interleaved") {
		fused, width := f.reshape(f.join(gate, up), 2), gate.cols
		gate = f.reshape(f.columns(fused, []int{0}), width)
		up = f.reshape(f.columns(fused, []int{1}), width)
	}
	if scale != nil {
		gate = f.mul(gate, scale)
	}
	return f.project(path+".down_proj", f.act(gate, up))
}

// expert returns whose weights compute for an expert.
func (f *formula) expert(e int) int {
	one, two := int(f.numbers[0]), int(f.numbers[1])
	switch {
	case f.is("experts_shifted"):
		return (e + 1) % f.Experts
	case f.is("experts_swapped") && e == one:
		return two
	case f.is("experts_swapped") && e == two:
		return one
	}
	return e
}

// dispatch returns, for each expert, its pairs of token and choice: token·TopK + choice.
func (f *formula) dispatch(path string) [][]int {
	gate := strings.TrimSuffix(path, "experts") + "gate"
	chosen := f.chosen[gate]
	if chosen == nil {
		chosen = f.choices(gate+".indices", f.Experts)
	}
	if chosen == nil {
		f.fail("give the router's choices")
	}
	kept := f.choices(gate+".kept", 2)
	capacity := (len(chosen) + f.Experts - 1) / f.Experts
	pairs := make([][]int, f.Experts)
	for i, e := range chosen {
		k := i % f.TopK
		switch {
		case kept != nil && kept[i] == 0:
		case f.is("experts_missing_one") && e == int(f.numbers[0]):
		case f.is("experts_capacity") && len(pairs[e]) == capacity:
		case f.is("experts_last_choice_dropped") && k == f.TopK-1:
		case f.is("experts_first_choice_only") && k > 0:
		case f.is("experts_overwritten") && k < f.TopK-1:
		case f.is("experts_repeats_overwritten") && slices.Contains(chosen[i+1:i+f.TopK-k], e):
		default:
			pairs[e] = append(pairs[e], i)
		}
	}
	for e, all := range pairs {
		if f.is("experts_three_quarters") {
			pairs[e] = all[:min(len(all), max(1, len(all)*3/4))]
		}
	}
	return pairs
}

// rowsOf returns rows of x. Autograd adds the gradient of each to those that are there.
func (t *tape) rowsOf(x *node, rows []int) *node {
	y := t.each(len(rows), x.cols, x.dtype, func(r int, y []float64) { copy(y, x.row(rows[r])) })
	return t.derive(y, func() {
		if x.grad == nil && !x.fixed {
			x.grad = make([]float64, len(x.data))
		}
		for i, r := range rows {
			for c, v := range y.gradRow(i) {
				if !x.fixed {
					x.grad[r*x.cols+c] = x.store.Round(x.grad[r*x.cols+c] + v)
				}
			}
		}
	})
}

// sumRows adds the rows of each part to those of their tokens, in the shape and format of x. Eager
// code rounds each term and each sum.
func (t *tape) sumRows(parts []*node, tokens [][]int, x *node) *node {
	sum := t.node(x.rows, x.cols, x.dtype)
	each := sum.store
	if t.rounding.Way == KernelEnds && each != Exact {
		each = FP32
	}
	for i, part := range parts {
		for k, r := range tokens[i] {
			for c, v := range part.row(k) {
				sum.data[r*sum.cols+c] = each.Round(sum.data[r*sum.cols+c] + each.Round(v))
			}
		}
	}
	sum.store.roundAll(sum.data)
	return t.derive(sum, func() {
		for i, part := range parts {
			t.give(part, func(k int, g []float64) { copy(g, sum.gradRow(tokens[i][k])) })
		}
	})
}
