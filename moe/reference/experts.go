package reference

import (
	"fmt"
	"strings"
)

// experts is Σ weight · expert(x) over the chosen experts of each token. x: [tokens, hidden];
// weights: [tokens, TopK].
func (f *formula) experts(path string, x, weights *node, chosen []int) *node {
	x, weights = f.flow(x, "experts_input_detached"), f.flow(weights, "experts_weight_detached")
	var parts []*node
	var tokens [][]int
	for e, slots := range f.dispatch(path, chosen) {
		if len(slots) == 0 {
			continue
		}
		rows := make([]int, len(slots))
		for i, slot := range slots {
			rows[i] = slot / f.TopK
		}
		w := f.take(weights, len(slots), 1, func(r, _ int) int { return slots[r] })
		in := f.rowsOf(x, rows)
		if f.is("experts_weight_on_input") {
			in = f.mul(in, w)
		}
		own := fmt.Sprintf("%s.%d", path, f.expert(e))
		y := f.mlp(own, in)
		switch {
		case f.is("experts_weight_on_gate"):
			gate := f.mul(f.project(own+".gate_proj", in), w)
			y = f.project(own+".down_proj", f.act(gate, f.project(own+".up_proj", in)))
		case f.is("experts_weight_missing") || f.is("experts_weight_on_input"):
		case f.is("experts_weight_squared"):
			y = f.mul(f.mul(y, w), w)
		case f.is("experts_mean"):
			y = f.scale(f.mul(y, w), 1/float64(f.TopK))
		default:
			y = f.mul(y, w)
		}
		parts, tokens = append(parts, y), append(tokens, rows)
	}
	return f.sumRows(parts, tokens, x)
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
func (f *formula) dispatch(path string, chosen []int) [][]int {
	if chosen == nil {
		f.fail("give the router's choices")
	}
	kept := f.choices(strings.TrimSuffix(path, "experts")+"gate.kept", 2)
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
					x.grad[r*x.cols+c] = x.store.round(x.grad[r*x.cols+c] + v)
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
				sum.data[r*sum.cols+c] = each.round(sum.data[r*sum.cols+c] + each.round(v))
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
