package reference

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// project is a linear layer: y = x·wᵀ + b.
func (f *formula) project(path string, x *node) *node {
	if strings.HasSuffix(path, "q_b_proj") || f.KVRank > 0 && strings.HasSuffix(path, "q_proj") {
		x = f.flow(x, "query_latent_detached")
	} else if strings.HasSuffix(path, "kv_b_proj") {
		x = f.flow(x, "latent_detached")
	}
	if strings.Contains(path, ".indexer.") && !f.is("index_input_attached") {
		x = f.detached(x)
	}
	bias := f.param(path + ".bias")
	switch {
	case f.is("bias_missing"):
		bias = nil
	case f.is("bias_twice") && bias != nil:
		bias = f.scale(bias, 2)
	}
	w := f.param(path + ".weight")
	if of := f.rounding.Recipe; of != nil {
		f.recipe = of(path)
	}
	if x.cols != w.cols && f.Streams > 0 { // of each stream
		return f.reshape(f.linear(f.reshape(x, w.cols), w, bias), x.cols/w.cols*w.rows)
	}
	y := f.linear(x, w, bias)
	if f.is("halves_swapped") {
		return f.columns(y, append(span(y.cols/2, y.cols), span(0, y.cols/2)...))
	}
	return y
}

// grouped is a linear layer of several groups: each reads its own part of x, and makes its own part
// of the result.
func (f *formula) grouped(path string, x *node) *node {
	var parts []*node
	w := f.param(path + ".weight")
	each := w.rows / f.OutputGroups
	for g := range f.OutputGroups {
		from := g
		if f.is("groups_reversed") {
			from = f.OutputGroups - 1 - g
		}
		parts = append(parts, f.linear(f.columns(x, span(from*w.cols, (from+1)*w.cols)), f.rowsOf(w, span(g*each, (g+1)*each)), nil))
	}
	return f.join(parts...)
}

// act is silu(gate) · up. With a limit, both are clamped before: gate from above, up on both sides.
func (f *formula) act(gate, up *node) *node {
	gate, up = f.flow(gate, "gate_detached"), f.flow(up, "up_detached")
	if limit := f.Limit; limit > 0 {
		shared := strings.Contains(f.module.Path, "shared_experts")
		switch {
		case f.is("act_unclamped"), f.is("shared_unclamped") && shared, f.is("routed_unclamped") && !shared:
		case f.is("act_clamped_after"):
			return f.clamp(f.mul(f.activation(gate), up), -limit, limit)
		default:
			gate = f.clamp(gate, math.Inf(-1), limit)
			up = f.clamp(up, -limit, limit)
		}
	}
	switch {
	case f.is("gate_up_swapped"):
		gate, up = up, gate
	case f.is("act_clamped"):
		most := cmp.Or(f.numbers[0], 7)
		gate, up = f.clamp(gate, math.Inf(-1), most), f.clamp(up, -most, most)
	case f.is("act_up_plus_1"):
		up = f.shift(up, 1)
	case f.is("act_squared"):
		return f.square(f.mul(f.activation(gate), up))
	case f.is("act_up_missing"):
		return f.activation(gate)
	}
	return f.kernel(func() *node { return f.mul(f.activation(gate), up) })
}

// activation is silu(x) = x·sigmoid(x), or that of a mistake.
func (f *formula) activation(x *node) *node {
	switch {
	case f.is("act_missing"):
		return x
	case f.is("act_relu"):
		return f.clamp(x, 0, math.Inf(1))
	case f.is("act_sigmoid"):
		return f.sigmoid(x)
	case f.is("act_gelu"):
		return f.apply(x, func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
			func(x, _ float64) float64 {
				return (1+math.Erf(x/math.Sqrt2))/2 + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
			})
	case f.is("act_gelu_tanh"): // x·sigmoid(2·inner)
		inner := func(x float64) float64 { return math.Sqrt(8/math.Pi) * (x + 0.044715*x*x*x) }
		return f.apply(x, func(x float64) float64 { return x * sigmoid(inner(x)) },
			func(x, _ float64) float64 {
				s := sigmoid(inner(x))
				return s + x*s*(1-s)*math.Sqrt(8/math.Pi)*(1+3*0.044715*x*x)
			})
	case f.is("act_gelu_quick"):
		return f.silu(x, 1.702)
	}
	return f.silu(x, 1)
}

// silu is x / (1 + exp(-slope·x)), in FP32.
func (f *formula) silu(x *node, slope float64) *node {
	x32 := f.cast(x, FP32)
	y := f.mul(x32, f.sigmoid(f.scale(x32, slope)))
	return f.cast(y, x.dtype)
}

// norm is RMSNorm: y = w · x / sqrt(mean(x²) + eps), for each row or each head.
//
// The statistic and the product with it are in FP32. The result is cast before it is multiplied by
// the weight.
func (f *formula) norm(path string, x *node) *node {
	w, width := f.param(path+".weight"), x.cols
	query := strings.Contains(path, ".q_")
	key := strings.Contains(path, ".k_") || strings.Contains(path, ".kv_")
	if f.is("norm_missing") || f.is("query_norm_missing") && query || f.is("key_norm_missing") && key {
		return x
	}
	if n := w.cols; f.is("norm_all_heads") {
		w = f.take(w, 1, width, func(_, i int) int { return i % n })
	}
	y := f.kernel(func() *node {
		x32 := f.cast(f.reshape(x, w.cols), FP32)
		if f.is("norm_layer") {
			x32 = f.add(x32, f.scale(f.sum(x32), 1/float64(w.cols)), -1)
		}
		over := pick(f, map[string]float64{"norm_sum": 1}, float64(w.cols))
		rstd := f.rsqrt(f.scale(f.sum(f.square(x32)), 1/over), f.eps(path))
		y := f.cast(f.mul(x32, f.flow(rstd, "norm_statistic_detached")), x.dtype)
		switch {
		case f.is("norm_weight_missing"):
			return y
		case f.is("norm_weight_plus_1"):
			return f.mul(y, f.shift(w, 1))
		}
		return f.mul(y, w)
	})
	return f.flow(f.reshape(y, width), path[strings.LastIndex(path, ".")+1:]+"_detached")
}

// layerNorm is y = w · (x - mean) / sqrt(variance + eps) + b. The norm is one kernel, in FP32. The
// keys of an indexer have it.
func (f *formula) layerNorm(path string, x *node) *node {
	w, b := f.param(path+".weight"), f.param(path+".bias")
	eps := pick(f, map[string]float64{"index_norm_eps_1e-5": 1e-5}, 1e-6)
	x32 := f.cast(x, FP32)
	if !f.is("index_norm_rms") {
		x32 = f.add(x32, f.scale(f.sum(x32), 1/float64(x.cols)), -1)
	}
	y := f.mul(x32, f.rsqrt(f.scale(f.sum(f.square(x32)), 1/float64(x.cols)), eps))
	if y = f.mul(y, f.cast(w, FP32)); !f.is("index_norm_rms") {
		y = f.add(y, f.cast(b, FP32), 1)
	}
	return f.cast(y, x.dtype)
}

// rsqrt returns 1/sqrt(x + eps).
func (f *formula) rsqrt(x *node, eps float64) *node {
	outside := 0.0
	if f.is("norm_eps_outside") {
		eps, outside = 0, max(eps, f.numbers[0])
	}
	return f.apply(f.shift(x, eps),
		func(x float64) float64 { return 1 / (math.Sqrt(x) + outside) },
		func(x, y float64) float64 { return -0.5 * y * y / math.Sqrt(x) })
}

// eps returns that of a norm. Those of DeepSeek's latents do not follow config.json.
func (f *formula) eps(path string) float64 {
	number, _ := f.begins("norm_eps_")
	other, err := strconv.ParseFloat(number, 64)
	switch {
	case err == nil:
		return other
	case f.is("norm_no_eps"):
		return 0
	case strings.HasSuffix(path, "_a_layernorm"):
		return f.LatentEps
	}
	return f.Eps
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

// branches adds the shared experts to the routed ones.
func (f *formula) branches(path string, routed, shared *node) *node {
	if f.is("shared_missing") {
		return routed
	}
	shared = f.flow(shared, "shared_detached")
	if weights := f.values[path+".gate.weights"]; f.is("shared_gated") && weights != nil {
		shared = f.mul(shared, f.sum(weights))
	}
	by := pick(f, map[string][2]float64{
		"shared_twice": {1, 2}, "shared_scaled": {1, f.RouteScale}, "routed_missing": {0, 1}, "routed_twice": {2, 1},
	}, [2]float64{1, 1})
	return f.weigh(routed, by[0], shared, by[1])
}

// glue is the sum of its inputs. What arrives at one reader has a gradient of its own.
func (f *formula) glue(m *Module, in []*node) *node {
	path, ofExperts := strings.CutSuffix(m.Path, ".sum")
	switch {
	case ofExperts && m != f.outer && len(in) == 2:
		return f.branches(path, in[0], in[1])
	case f.is("index_raw_latent") && (strings.HasSuffix(m.Path, ".indexer.input.1.handover") || strings.HasSuffix(m.Path, ".indexer.wq_b.handover") ||
		strings.HasSuffix(m.Path, ".indexer.q_b_proj.handover")):
		return f.look(Port{Name: layerPath(m.Layer) + ".self_attn.q_a_proj.output"})
	case len(in) == 1 && m != f.outer:
		y := *in[0]
		y.grad = nil
		return f.derive(&y, func() { f.give(in[0], func(r int, g []float64) { copy(g, y.gradRow(r)) }) })
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
	if f.is("index_input_attached") {
		y = f.withIndexer(m, y)
	}
	if f.is("handover_shifted") {
		return f.take(y, y.rows, y.cols, func(r, i int) int { return max(r-1, 0)*y.cols + i })
	}
	return y
}

// withIndexer adds to a gradient what an indexer sends that is not detached.
func (f *formula) withIndexer(m *Module, y *node) *node {
	for tensor, port := range map[string]string{"input": "grad_input", "q_a_layernorm.output": "grad_input.1"} {
		attention := layerPath(m.Layer) + ".self_attn."
		if m.Path == attention+tensor+".grad" && f.IndexTopK > 0 && !f.Shared(m.Layer) {
			y = f.add(y, f.look(Port{Name: attention + "indexer." + port}), 1)
		}
	}
	return y
}

// embedding is the row of the weight for each token. Layers for further tokens read the token that
// their number says.
func (f *formula) embedding() *node {
	w := f.param("model.embed_tokens.weight")
	ids := f.batch.ahead(f.batch.IDs, f.ahead())
	if f.is("embedding_shifted") {
		ids = f.batch.ahead(ids, 1)
	}
	ids = f.batch.rolled(ids, pick(f, map[string]int{"embedding_rolled": 1, "embedding_rolled_back": -1}, 0))
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
