package reference

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// experts is Σ weight · expert(x) over the chosen experts of each token. x: [tokens, hidden];
// weights: [tokens, TopK]. The tokens are sorted by expert, so that each expert has a range of rows.
func (f *formula) experts(path string, x, weights *node, chosen []int) *node {
	rows := f.dispatch(path, chosen)
	tokens, slots := make([]int, len(rows)), make([]int, len(rows))
	for i, slot := range rows {
		tokens[i], slots[i] = slot/f.TopK, slot
	}
	x = f.flow(x, "experts_input_detached")
	in := f.rowsOf(x, tokens)
	w := f.take(f.flow(weights, "experts_weight_detached"), len(slots), 1, func(r, _ int) int { return slots[r] })
	if f.is("experts_weight_on_input") {
		in = f.mul(in, w)
	}
	var parts []*node
	for lo := 0; lo < len(rows); {
		e, hi := chosen[rows[lo]], lo
		for hi < len(rows) && chosen[rows[hi]] == e {
			hi++
		}
		parts = append(parts, f.mlp(fmt.Sprintf("%s.%d", path, f.expert(e)), f.rowRange(in, lo, hi)))
		lo = hi
	}
	y := f.stack(parts, x)
	switch {
	case f.is("experts_weight_missing") || f.is("experts_weight_on_input"):
	case f.is("experts_weight_squared"):
		y = f.mul(f.mul(y, w), w)
	default:
		y = f.mul(y, w)
	}
	if f.is("experts_mean") {
		y = f.scale(y, 1/float64(f.TopK))
	}
	return f.sumRows(y, tokens, x)
}

// expert returns whose weights compute for an expert.
func (f *formula) expert(e int) int {
	one, two := f.numbers[0], f.numbers[1]
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

// dispatch returns the pairs of token and choice, token·TopK + choice, sorted by expert.
func (f *formula) dispatch(path string, chosen []int) (pairs []int) {
	if chosen == nil {
		f.fail("%s: give the router's choices", path)
		return nil
	}
	kept := f.choices(strings.TrimSuffix(path, "experts") + "gate.kept")
	capacity := (len(chosen) + f.Experts - 1) / f.Experts
	load, total := make([]int, f.Experts), make([]int, f.Experts)
	for _, e := range chosen {
		total[e]++
	}
	for i, e := range chosen {
		k := i % f.TopK
		switch load[e]++; {
		case kept != nil && kept[i] == 0:
		case f.is("experts_missing_one") && e == f.numbers[0]:
		case f.is("experts_capacity") && load[e] > capacity:
		case f.is("experts_three_quarters") && load[e] > max(1, total[e]*3/4):
		case f.is("experts_last_choice_dropped") && k == f.TopK-1:
		case f.is("experts_first_choice_only") && k > 0:
		case f.is("experts_overwritten") && k < f.TopK-1:
		default:
			pairs = append(pairs, i)
		}
	}
	slices.SortStableFunc(pairs, func(a, b int) int { return cmp.Compare(chosen[a], chosen[b]) })
	return pairs
}

// rowsOf returns rows of x. Autograd adds the gradients of the last one first.
func (f *formula) rowsOf(x *node, rows []int) *node {
	y := f.each(len(rows), x.cols, x.dtype, func(r int, y []float64) { copy(y, x.row(rows[r])) })
	return f.derive(y, func() {
		g := &node{rows: x.rows, cols: x.cols, data: make([]float64, len(x.data)), store: x.store}
		f.addRows(g, y.grad, slices.Backward(rows))
		f.giveAll(x, g.data)
	})
}

// sumRows adds each row of y to that of its token, in the shape and format of x.
func (f *formula) sumRows(y *node, tokens []int, x *node) *node {
	sum := f.node(x.rows, x.cols, x.dtype)
	f.addRows(sum, y.data, slices.All(tokens))
	return f.derive(sum, func() {
		f.give(y, func(r int, g []float64) { copy(g, sum.gradRow(tokens[r])) })
	})
}

// addRows adds rows to those of sum. Eager code rounds each term and each sum.
func (f *formula) addRows(sum *node, rows []float64, to iter.Seq2[int, int]) {
	each := sum.store
	if f.rounding.Way == KernelEnds && each != Exact {
		each = FP32
	}
	for i, r := range to {
		row := sum.row(r)
		for c, v := range rows[i*sum.cols : (i+1)*sum.cols] {
			row[c] = each.round(row[c] + each.round(v))
		}
	}
	sum.store.roundAll(sum.data)
}

// rowRange returns rows [lo, hi) of x.
func (f *formula) rowRange(x *node, lo, hi int) *node {
	y := &node{rows: hi - lo, cols: x.cols, data: x.data[lo*x.cols : hi*x.cols], dtype: x.dtype, store: x.store, fixed: x.fixed}
	return f.derive(y, func() {
		if x.grad == nil {
			x.grad = make([]float64, len(x.data))
		}
		copy(x.grad[lo*x.cols:], y.grad)
	})
}

// stack returns the rows of all parts below each other. Without parts it has x's columns.
func (f *formula) stack(parts []*node, x *node) *node {
	y := f.node(0, x.cols, x.dtype)
	for _, p := range parts {
		y.rows, y.data, y.dtype, y.store = y.rows+p.rows, append(y.data, p.data...), p.dtype, p.store
	}
	return f.derive(y, func() {
		from := 0
		for _, p := range parts {
			f.giveAll(p, y.grad[from:from+len(p.data)])
			from += len(p.data)
		}
	})
}
