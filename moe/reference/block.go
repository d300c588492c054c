package reference

import "fmt"

// block is a layer: h = x + attention(norm(x)), and h + mlp(norm(h)).
func (f *formula) block(path string, x *node) *node {
	h := f.residual(x, f.attention(path+".self_attn", f.norm(path+".input_layernorm", x)))
	in := f.norm(path+".post_attention_layernorm", h)
	if f.layer >= f.Layers || f.Sparse(f.layer) {
		return f.residual(h, f.moe(path+".mlp", in))
	}
	return f.residual(h, f.mlp(path+".mlp", in))
}

// residual is x + y.
func (f *formula) residual(x, y *node) *node { return f.add(x, y, 1) }

// glue is the sum of its inputs.
func (f *formula) glue(kind Kind, in []*node) *node {
	y := in[0]
	for _, x := range in[1:] {
		if x.rows*x.cols != y.rows*y.cols {
			f.fail("inputs of %d and %d elements: expected as many", len(y.data), len(x.data))
			return y
		}
		y = f.residual(y, f.reshape(x, y.cols))
	}
	return y
}

// embedding is the row of the weight for each token.
func (f *formula) embedding(path string) *node {
	w := f.param(path + ".weight")
	var ids []int
	for _, id := range f.batch.IDs {
		if id < 0 || int(id) >= w.rows {
			f.fail("token %d is outside the vocabulary of %d", id, w.rows)
			return w
		}
		ids = append(ids, int(id))
	}
	if rows := f.call.Tokens; rows != nil {
		all := ids
		ids = nil
		for _, r := range rows {
			ids = append(ids, all[r])
		}
	}
	return f.rowsOf(w, ids)
}

func (f *formula) fail(format string, values ...any) {
	f.wrong = fmt.Errorf(format, values...)
}
