package reference

import "math"

// attention is a layer's attention with its projections and norms. x: [tokens, hidden].
func (f *formula) attention(path string, x *node) *node {
	in := f.grouped
	if f.KVRank > 0 {
		in = f.latent
	}
	return f.project(path+".o_proj", f.core(in(path, x)))
}

// latent makes the inputs of DeepSeek's attention: queries, from a latent of their own if QRank is
// not 0; the rotated part of the keys; keys and values from a latent of KVRank elements.
func (f *formula) latent(path string, x *node) []*node {
	queries := path + ".q_proj"
	q := x
	if f.QRank > 0 {
		queries = path + ".q_b_proj"
		q = f.project(path+".q_a_proj", x)
		if !f.is("query_norm_missing") {
			q = f.norm(path+".q_a_layernorm", q)
		}
	}
	down := f.project(path+".kv_a_proj_with_mqa", x)
	c, rope := f.columns(down, span(0, f.KVRank)), f.columns(down, span(f.KVRank, down.cols))
	if !f.is("key_norm_missing") {
		c = f.norm(path+".kv_a_layernorm", c)
	}
	return []*node{
		f.project(queries, f.flow(q, "query_latent_detached")), rope,
		f.project(path+".kv_b_proj", f.flow(c, "latent_detached")),
	}
}

// grouped makes queries of all heads, and keys and values of fewer, with a norm of each head.
func (f *formula) grouped(path string, x *node) []*node {
	q, k, v := f.project(path+".q_proj", x), f.project(path+".k_proj", x), f.project(path+".v_proj", x)
	if f.QKNorm && !f.is("query_norm_missing") {
		q = f.norm(path+".q_norm", q)
	}
	if f.QKNorm && !f.is("key_norm_missing") {
		k = f.norm(path+".k_norm", k)
	}
	return []*node{q, k, v}
}

// core is softmax(q·kᵀ·scale)·v of each head, with rotated queries and keys. Its inputs are those
// of the module Core.
func (f *formula) core(in []*node) *node {
	q, k, v, width := in[0], in[1], in[2], f.HeadDim
	if f.KVRank > 0 {
		width = f.RopeDim
	} else if f.is("keys_values_swapped") {
		k, v = v, k
	}
	ahead := pick(f, map[string]int{"rope_position_plus_1": 1}, 0)
	sign := pick(f, map[string]float64{"rope_queries_reversed": -1}, 1)
	if !f.is("rope_missing") && !f.is("rope_keys_only") {
		q = f.rotary(q, f.HeadDim, ahead, sign)
	}
	if !f.is("rope_missing") && !f.is("rope_queries_only") {
		k = f.rotary(k, width, 0, 1)
	}
	if f.KVRank > 0 {
		k, v = f.latentKeys(f.flow(k, "rope_key_detached"), v)
	} else {
		k, v = f.repeated(k, f.HeadDim), f.repeated(v, f.ValueDim)
	}
	if f.is("rope_values") {
		v = f.rotary(v, f.ValueDim, 0, 1)
	}
	return f.attend(f.flow(q, "queries_detached"), f.flow(k, "keys_detached"), f.flow(v, "values_detached"))
}

// latentKeys returns keys and values of all heads. A key is a part of its own and the rotated part
// that all heads share.
func (f *formula) latentKeys(rope, kv *node) (k, v *node) {
	n, d, heads := f.NopeDim, f.NopeDim+f.ValueDim, f.Heads
	key, value := span(0, n), span(n, d)
	if f.is("keys_values_swapped") {
		key, value = span(d-n, d), span(0, d-n)
	}
	if f.is("keys_values_blocked") {
		kv = f.join(f.reshape(f.columns(kv, span(0, heads*n)), n), f.reshape(f.columns(kv, span(heads*n, heads*d)), d-n))
	}
	kv = f.reshape(kv, d)
	k = f.join(f.columns(kv, key), f.spread(rope, heads))
	return f.reshape(k, heads*f.HeadDim), f.reshape(f.columns(kv, value), heads*f.ValueDim)
}

// repeated repeats the heads of x, [tokens, key heads·width], for the query heads of their groups.
func (f *formula) repeated(x *node, width int) *node {
	var columns []int
	for h := range f.Heads {
		from := h * f.KVHeads / f.Heads
		if f.is("keys_swapped") && from < 2 {
			from = (1 - from) % f.KVHeads
		}
		from = pick(f, map[string]int{"heads_interleaved": h % f.KVHeads, "one_key_head": 0}, from)
		columns = append(columns, span(from*width, (from+1)*width)...)
	}
	return f.columns(x, columns)
}

// scoreScale is 1/sqrt(head dimension), times YaRN's mscale² in latent attention.
func (f *formula) scoreScale() float64 {
	dims := map[string]int{
		"scale_missing": 1, "scale_of_nope": f.NopeDim, "scale_of_values": f.ValueDim, "scale_of_rope": f.RopeDim,
		"scale_of_hidden": f.Hidden / f.Heads, "scale_squared": f.HeadDim * f.HeadDim,
	}
	powers := map[string]float64{"mscale_missing": 0, "mscale_once": 0.5, "mscale_twice": 2}
	dim, power, by := pick(f, dims, f.HeadDim), pick(f, powers, 1), pick(f, map[string]float64{"scale_other": f.numbers[0]}, 1)
	return by * math.Pow(f.Rope.ScoreScale, power) / math.Sqrt(float64(dim))
}

// mask returns, for a sequence, 0 where token i sees token j and -Inf elsewhere: [seq, seq].
func (f *formula) mask(s int) []float64 {
	b, n, documents := f.batch, f.batch.Seq, f.batch.documents()
	window := pick(f, map[string]int{"window_missing": 0, "window_plus_1": f.Window + 1, "window_minus_1": f.Window - 1, "window_other": int(f.numbers[0])}, f.Window)
	last := pick(f, map[string]int{"mask_missing": n, "mask_late": 1, "mask_early": -1}, 0)
	if f.is("documents_joined") {
		documents = nil
	}
	mask := make([]float64, n*n)
	for i := range n {
		for j := range n {
			at, to := s*n+i, s*n+j
			if j > max(i+last, 0) || documents != nil && documents[at] != documents[to] ||
				b.Mask != nil && b.Mask[to] == 0 && !f.is("padding_seen") || window != 0 && i-j >= window {
				mask[i*n+j] = math.Inf(-1)
			}
		}
	}
	return mask
}
