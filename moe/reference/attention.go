package reference

import (
	"math"
	"slices"
)

// attention is a layer's attention with its projections and norms. x: [tokens, hidden].
func (f *formula) attention(path string, x *node) *node {
	var in []*node
	if f.KVRank > 0 {
		in = f.latent(path, x)
	} else {
		in = f.grouped(path, x)
	}
	return f.project(path+".o_proj", f.core(in))
}

// latent makes the inputs of DeepSeek's attention: queries from a latent of their own, keys and
// values from one of KVRank elements, next to which stands the rotated part of the keys.
func (f *formula) latent(path string, x *node) []*node {
	var q *node
	if f.QRank > 0 {
		c := f.project(path+".q_a_proj", x)
		if !f.is("query_norm_missing") {
			c = f.norm(path+".q_a_layernorm", c)
		}
		if f.is("query_latent_detached") {
			c = f.detach(c)
		}
		q = f.project(path+".q_b_proj", c)
	} else {
		q = f.project(path+".q_proj", x)
	}
	down := f.project(path+".kv_a_proj_with_mqa", x)
	c, rope := f.pick(down, span(0, f.KVRank)), f.pick(down, span(f.KVRank, down.cols))
	if !f.is("key_norm_missing") {
		c = f.norm(path+".kv_a_layernorm", c)
	}
	if f.is("latent_detached") {
		c = f.detach(c)
	}
	return []*node{q, rope, f.project(path+".kv_b_proj", c)}
}

// grouped makes queries of all heads, and keys and values of fewer, with a norm of each head.
func (f *formula) grouped(path string, x *node) []*node {
	q, k, v := f.project(path+".q_proj", x), f.project(path+".k_proj", x), f.project(path+".v_proj", x)
	if f.QKNorm && !f.is("norm_after_rope") {
		if !f.is("query_norm_missing") {
			q = f.norm(path+".q_norm", q)
		}
		if !f.is("key_norm_missing") {
			k = f.norm(path+".k_norm", k)
		}
	}
	return []*node{q, k, v}
}

// core is softmax(q·kᵀ·scale)·v of each head, with rotated queries and keys. Its inputs are those
// of the module Core.
func (f *formula) core(in []*node) *node {
	q := f.rotary(in[0], f.HeadDim, f.positions("queries"), f.is("rope_queries_reversed"))
	var k, v *node
	if f.KVRank > 0 {
		rope := f.rotary(in[1], f.RopeDim, f.positions("keys"), false)
		k, v = f.latentKeys(rope, in[2])
	} else {
		k = f.heads(f.rotary(in[1], f.HeadDim, f.positions("keys"), false), f.HeadDim)
		v = f.heads(in[2], f.ValueDim)
	}
	switch {
	case f.is("queries_detached"):
		q = f.detach(q)
	case f.is("keys_detached"):
		k = f.detach(k)
	case f.is("values_detached"):
		v = f.detach(v)
	case f.is("rope_values"):
		v = f.rotary(v, f.ValueDim, f.positions("keys"), false)
	}
	return f.attend(q, k, v)
}

// latentKeys returns keys and values of all heads: each key is a part of its own and the rotated
// part that all heads share.
func (f *formula) latentKeys(rope, kv *node) (k, v *node) {
	n, d := f.NopeDim, f.NopeDim+f.ValueDim
	if f.is("rope_key_detached") {
		rope = f.detach(rope)
	}
	kv = f.reshape(kv, d)
	key, value := span(0, n), span(n, d)
	if f.is("keys_values_swapped") {
		value, key = span(0, d-n), span(d-n, d)
	}
	every := make([]int, 0, rope.rows*f.Heads)
	for r := range rope.rows * f.Heads {
		every = append(every, r/f.Heads)
	}
	k = f.join(f.pick(kv, key), f.rowsOf(rope, every))
	return f.reshape(k, f.Heads*f.HeadDim), f.reshape(f.pick(kv, value), f.Heads*f.ValueDim)
}

// heads repeats the heads of x, [tokens, key heads·width], for the query heads of their groups.
func (f *formula) heads(x *node, width int) *node {
	group := f.Heads / f.KVHeads
	var columns []int
	for h := range f.Heads {
		from := h / group
		switch {
		case f.is("heads_interleaved"):
			from = h % f.KVHeads
		case f.is("keys_swapped") && f.KVHeads > 1 && from < 2:
			from = 1 - from
		case f.is("one_key_head"):
			from = 0
		}
		columns = append(columns, span(from*width, (from+1)*width)...)
	}
	return f.pick(x, columns)
}

// positions returns those of the tokens.
func (f *formula) positions(string) []int32 {
	positions := slices.Clone(f.batch.Positions)
	if positions == nil {
		for i := range f.batch.Batch * f.batch.Seq {
			positions = append(positions, int32(i%f.batch.Seq))
		}
	}
	return positions
}

// scoreScale is 1/sqrt(head dimension), times YaRN's mscale² in latent attention.
func (f *formula) scoreScale() float64 {
	return f.Rope.ScoreScale / math.Sqrt(float64(f.HeadDim))
}

// visible reports, for a sequence, whether token i sees token j: [seq, seq].
func (f *formula) visible(s int) []bool {
	b, n := f.batch, f.batch.Seq
	documents := b.documents()
	see := make([]bool, n*n)
	for i := range n {
		for j := range i + 1 {
			at, to := s*n+i, s*n+j
			see[i*n+j] = (documents == nil || documents[at] == documents[to]) &&
				(b.Mask == nil || b.Mask[to] != 0) && (f.Window == 0 || i-j < f.Window)
		}
	}
	return see
}
