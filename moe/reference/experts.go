package reference

import (
	"fmt"
	"strings"
)

// experts is Σ weight · expert(x) over the chosen experts of each token. x: [tokens, hidden];
// weights and chosen: [tokens, TopK].
func (f *formula) experts(path string, x, weights *node, chosen []int) *node {
	if chosen == nil {
		f.fail("give the router's choices")
		chosen = make([]int, len(weights.data))
	}
	tokens := make([][]int, f.Experts)
	slots := make([][]int, f.Experts)
	kept := f.choices(strings.TrimSuffix(path, "experts")+"gate.kept")
	for i, e := range chosen {
		if kept == nil || kept[i] != 0 {
			tokens[e], slots[e] = append(tokens[e], i/f.TopK), append(slots[e], i)
		}
	}
	var parts []*node
	flat := f.reshape(weights, 1)
	for e := range f.Experts {
		if len(tokens[e]) == 0 {
			f.expertParams(path, e)
			continue
		}
		y := f.mlp(fmt.Sprintf("%s.%d", path, e), f.rowsOf(x, tokens[e]))
		parts = append(parts, f.mul(y, f.rowsOf(flat, slots[e])))
	}
	used := tokens[:0:0]
	for _, list := range tokens {
		if len(list) > 0 {
			used = append(used, list)
		}
	}
	return f.scatterSum(x, parts, used)
}

// expertParams reads the weights of an expert without tokens: their gradients are zero.
func (f *formula) expertParams(path string, e int) {
	for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
		f.param(fmt.Sprintf("%s.%d.%s.weight", path, e, name))
	}
}

// scatterSum adds the rows of parts to those of their tokens, in x's shape and format. Eager code
// rounds each term and each sum.
func (f *formula) scatterSum(x *node, parts []*node, tokens [][]int) *node {
	y := f.node(x.rows, x.cols, x.dtype)
	each := y.store
	if f.rounding.Way == KernelEnds && each != Exact {
		each = FP32
	}
	for i, part := range parts {
		for k, r := range tokens[i] {
			to := y.row(r)
			for c, v := range part.row(k) {
				to[c] = each.round(to[c] + each.round(v))
			}
		}
	}
	y.store.roundAll(y.data)
	return f.derive(y, func() {
		for i, part := range parts {
			f.give(part, func(k int, g []float64) { copy(g, y.gradRow(tokens[i][k])) })
		}
	})
}

// moe is the layer of routed and shared experts.
func (f *formula) moe(path string, x *node) *node {
	_, weights, chosen := f.router(path+".gate", x)
	y := f.experts(path+".experts", x, weights, chosen)
	if f.SharedExperts == 0 {
		return y
	}
	return f.add(y, f.mlp(path+".shared_experts", x), 1)
}
