package reference

import (
	"fmt"
	"math"
)

// block is a layer: h = x + attention(norm(x)), and h + mlp(norm(h)).
func (f *formula) block(path string, x *node) *node {
	h := f.residual(x, f.attention(path+".self_attn", f.norm(path+".input_layernorm", x)))
	in := f.norm(path+".post_attention_layernorm", h)
	if f.Sparse(f.layer) {
		return f.residual(h, f.moe(path+".mlp", in))
	}
	return f.residual(h, f.mlp(path+".mlp", in))
}

// moe is the layer of routed and shared experts.
func (f *formula) moe(path string, x *node) *node {
	_, weights, chosen := f.router(path+".gate", x)
	y := f.experts(path+".experts", x, weights, chosen)
	if f.SharedExperts == 0 || f.is("shared_missing") {
		return y
	}
	shared := f.flow(f.mlp(path+".shared_experts", x), "shared_detached")
	if f.is("shared_gated") {
		shared = f.mul(shared, f.sum(weights))
	}
	by := pick(f, map[string][2]float64{
		"shared_twice": {1, 2}, "shared_scaled": {1, f.RouteScale}, "routed_missing": {0, 1}, "routed_twice": {2, 1},
	}, [2]float64{1, 1})
	return f.weigh(y, by[0], shared, by[1])
}

// weigh is a·x + b·y. Right code multiplies by nothing.
func (f *formula) weigh(x *node, a float64, y *node, b float64) *node {
	if a != 1 {
		x = f.scale(x, a)
	}
	return f.add(x, y, b)
}

// residual is x + y.
func (f *formula) residual(x, y *node) *node {
	half := math.Sqrt(0.5)
	by := pick(f, map[string][2]float64{
		"residual_missing": {0, 1}, "residual_twice": {2, 1}, "branch_missing": {1, 0}, "branch_twice": {1, 2},
		"branch_subtracted": {1, -1}, "sum_by_root_2": {half, half},
	}, [2]float64{1, 1})
	return f.weigh(f.flow(x, "residual_detached"), by[0], f.flow(y, "branch_detached"), by[1])
}

// glue is the sum of its inputs.
func (f *formula) glue(in []*node) *node {
	switch {
	case f.is("first_reader_only"):
		in = in[:1]
	case f.is("last_reader_only"):
		in = in[len(in)-1:]
	}
	y := in[0]
	for _, x := range in[1:] {
		if len(x.data) != len(y.data) {
			f.fail("inputs of %d and %d elements: expected as many", len(y.data), len(x.data))
			return y
		}
		y = f.residual(y, f.reshape(x, y.cols))
	}
	if f.is("handover_shifted") {
		return f.take(y, y.rows, y.cols, func(r, i int) int { return max(r-1, 0)*y.cols + i })
	}
	return y
}

// embedding is the row of the weight for each token. Layers for further tokens read the token that
// their number says.
func (f *formula) embedding() *node {
	w, ids := f.param("model.embed_tokens.weight"), f.batch.ahead(f.batch.IDs, f.ahead())
	if f.is("embedding_shifted") {
		ids = f.batch.ahead(ids, 1)
	}
	tokens := make([]int, len(f.tokens()))
	for i, r := range f.tokens() {
		tokens[i] = int(ids[r])
		if tokens[i] < 0 || tokens[i] >= w.rows {
			f.fail("token %d is outside the vocabulary of %d", ids[r], w.rows)
			return w
		}
		if f.is("embedding_id_plus_1") {
			tokens[i] = (tokens[i] + 1) % w.rows
		}
	}
	y := f.rowsOf(w, tokens)
	if f.is("embedding_scaled") {
		return f.scale(y, math.Sqrt(float64(w.cols)))
	}
	return y
}

// ahead is how many tokens after its own a layer reads: 0 in all but those for further tokens.
func (f *formula) ahead() int { return max(f.layer-f.Layers+1, 0) }

// fail notes the first error.
func (f *formula) fail(format string, values ...any) {
	if f.wrong == nil {
		f.wrong = fmt.Errorf(format, values...)
	}
}
