package reference

import (
	"math"
	"slices"
)

// apart returns a formula with a tape of its own.
func (f *formula) apart() *formula {
	one := &formula{
		tape: tape{rounding: f.rounding, fast: f.fast}, Config: f.Config, call: f.call, module: f.module, layer: f.layer,
		mistake: f.mistake, numbers: f.numbers, trace: f.trace,
	}
	if f.rounding.Way == KernelEnds {
		one.lost = 2 // of an FP32 operand that a GPU splits into two of TF32
	}
	return one
}

// core is softmax(q·kᵀ·scale)·v of each head, with rotated queries and keys. Its inputs are those
// of the module Core.
func (f *formula) core(in []*node) *node {
	if f.Streams > 0 {
		return f.sharedCore(in)
	}
	q, k, v := f.heads(in)
	if f.is("index_target_attached") && f.outer.Kind == Core {
		f.targetGradient(in)
	}
	return f.attend(f.flow(q, "queries_detached"), f.flow(k, "keys_detached"), f.flow(v, "values_detached"))
}

// heads returns the queries, keys and values of all heads from the inputs of a core.
func (f *formula) heads(in []*node) (q, k, v *node) {
	q, k, v = in[0], in[1], in[2]
	width := f.HeadDim
	if f.KVRank > 0 {
		width = f.RopeDim
	} else if f.is("keys_values_swapped") {
		k, v = v, k
	}
	ahead := pick(f, map[string]int{"rope_position_plus_1": 1, "rope_position_minus_1": -1}, 0)
	sign := pick(f, map[string]float64{"rope_queries_reversed": -1}, 1)
	if f.is("queries_split_swapped") {
		front := append(span(f.RopeDim, f.HeadDim), span(0, f.RopeDim)...)
		q = f.reshape(f.columns(f.reshape(q, f.HeadDim), front), q.cols)
	}
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
	if last := v.cols - f.ValueDim; f.is("values_of_head_before") {
		v = f.columns(v, append(span(last, v.cols), span(0, last)...))
	}
	return q, k, v
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
	if f.is("rope_scores_missing") {
		rope = f.scale(rope, 0)
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
	dim := pick(f, dims, f.HeadDim)
	power := pick(f, powers, 1)
	by := pick(f, map[string]float64{"scale_other": f.numbers[0]}, 1)
	if factor := f.rope().Factor; f.is("mscale_added") {
		by = mscale(factor, 1) * mscale(factor, 1)
	}
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
	number := max(int(f.numbers[0]), 1)
	cut := pick(f, map[string]int{"documents_other": number}, n)
	chunk := pick(f, map[string]int{"chunk_other": number}, n)
	mask := make([]float64, n*n)
	for i := range n {
		for j := range n {
			at, to := s*n+i, s*n+j
			if j > max(i+last, 0) || i >= cut && j < cut || i/chunk != j/chunk || documents != nil && documents[at] != documents[to] ||
				b.Mask != nil && b.Mask[to] == 0 && !f.is("padding_seen") || window != 0 && i-j >= window {
				mask[i*n+j] = math.Inf(-1)
			}
		}
	}
	return mask
}

// attend is the attention of all heads. q, k: [tokens, heads·HeadDim]; v and the result: [tokens,
// heads·ValueDim].
//
// Each head has a tape of its own. It runs again before it runs backward, so that the scores of one
// head only are held.
func (f *formula) attend(q, k, v *node) *node {
	in, chosen := []*node{q, k, v}, f.selection(f.layer)
	o := f.node(q.rows, f.Heads*f.ValueDim, promote(promote(q.dtype, k.dtype), v.dtype))
	head := func(s, h int, mask *node) (one *formula, parts []*node, y *node) {
		one = f.apart()
		for _, x := range in {
			part := &node{rows: f.batch.Seq, cols: x.cols / f.Heads, dtype: x.dtype, store: x.store}
			part.data = f.headRows(x.data, s, h, part.cols)
			parts = append(parts, part)
		}
		return one, parts, one.oneHead(parts[0], parts[1], parts[2], mask, nil)
	}
	f.eachHead(o.dtype, chosen, func(s, h int, mask *node) {
		_, _, y := head(s, h, mask)
		f.setHeadRows(o.data, y.data, s, h, y.cols)
	})
	return f.derive(o, func() {
		gradients := [3][]float64{make([]float64, len(q.data)), make([]float64, len(k.data)), make([]float64, len(v.data))}
		f.eachHead(o.dtype, chosen, func(s, h int, mask *node) {
			one, parts, y := head(s, h, mask)
			y.grad = f.headRows(o.grad, s, h, y.cols)
			one.tape.run()
			for i, x := range parts {
				f.setHeadRows(gradients[i], gradient(x).Data, s, h, x.cols)
			}
		})
		for i, x := range in {
			f.giveAll(x, gradients[i])
		}
	})
}

// oneHead is softmax(q·kᵀ·scale + mask)·v of one head of one sequence, with the softmax in FP32.
// Eager code stores scores and probabilities in its own precision. Fused code keeps them in FP32,
// but rounds the operands of its products: the probabilities and, backward, their scores' gradient.
//
// sink is one more logit of each row, which has no value; nil: there is none. With one, eager code
// takes the largest logit off first, in its own precision.
func (f *formula) oneHead(q, k, v, mask, sink *node) (y *node) {
	fused := f.rounding.Way == KernelEnds
	y = f.kernel(func() *node {
		product := f.linear(q, k, nil)
		scores := f.scale(product, f.scoreScale())
		if f.is("softcap") || f.is("softcap_other") {
			most := pick(f, map[string]float64{"softcap_other": max(f.numbers[0], 0.1)}, 50)
			tanh := func(x float64) float64 { return most * math.Tanh(x/most) }
			scores = f.apply(scores, tanh, func(_, y float64) float64 { return 1 - y*y/most/most })
		}
		scores = f.add(scores, mask, 1)
		switch {
		case sink != nil && !f.is("sink_missing"):
			wide := promote(scores.dtype, sink.dtype)
			scores = f.join(f.cast(scores, wide), f.spread(f.cast(sink, wide), q.rows))
			most := f.each(q.rows, 1, wide, func(r int, y []float64) { y[0] = slices.Max(scores.row(r)) })
			most.fixed = true
			scores = f.add(scores, most, -1)
		case f.is("sink"):
			scores = f.join(f.cast(scores, FP32), f.constant(q.rows, 1, make([]float64, q.rows), FP32))
		default:
			scores = f.cast(scores, FP32)
		}
		var mean func(r int) float64
		if fused { // it has the rounded result at hand, which no longer cancels all of a small gradient
			product.store = q.dtype
			mean = func(r int) float64 { return accumulator(y).Round(dot(y.row(r), y.gradRow(r))) }
		}
		p := f.softmaxOf(scores, mean)
		if p.cols > k.rows {
			p = f.columns(p, span(0, k.rows))
		}
		if p = f.cast(p, q.dtype); fused {
			q.dtype.roundAll(p.data)
		}
		return f.linear(p, f.transpose(v), nil)
	})
	return y
}

func dot(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// eachHead calls do for all heads of all sequences, with the mask of the sequence: of the chosen
// keys, if they are not nil.
func (f *formula) eachHead(dtype Format, chosen []int, do func(s, h int, mask *node)) {
	n := f.batch.Seq
	for s := range f.batch.Batch {
		sees := f.mask(s)
		if per := len(chosen) / f.batch.Batch; chosen != nil {
			sees = restrict(sees, n, chosen[s*per:(s+1)*per])
		}
		mask := f.constant(n, n, sees, dtype)
		parallel(f.Heads, n*n*f.HeadDim, func(lo, hi int) {
			for h := lo; h < hi; h++ {
				do(s, h, mask)
			}
		})
	}
}

// headRows copies the rows of a head out of [tokens, heads·width].
func (f *formula) headRows(all []float64, s, h, width int) (rows []float64) {
	rows = make([]float64, 0, f.batch.Seq*width)
	for i := range f.batch.Seq {
		at := ((s*f.batch.Seq+i)*f.Heads + h) * width
		rows = append(rows, all[at:at+width]...)
	}
	return rows
}

// setHeadRows copies them back.
func (f *formula) setHeadRows(all, rows []float64, s, h, width int) {
	for i := range f.batch.Seq {
		copy(all[((s*f.batch.Seq+i)*f.Heads+h)*width:], rows[i*width:(i+1)*width])
	}
}
