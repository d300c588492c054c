package reference

import (
	"math"
	"slices"
)

// Residual streams: the hidden state of a token is a matrix X of Streams rows, [streams, hidden]. A
// branch (attention, or experts) reads a weighted sum of the rows. Its output is added to each row
// with a weight, and the rows are mixed:
//
//	x = Σ_i pre_i·X_i   and   X'_k = post_k·branch(norm x) + Σ_j comb_jk·X_j
//
// The weights depend on the token. In memory the rows of a token stand behind each other.

// hyper computes the weights of a branch from the streams, [tokens, streams·hidden], and its input.
// It returns post, comb and x. All is in FP32. With m in three parts:
//
//	pre = sigmoid(m) + ε   post = 2·sigmoid(m)   comb = Sinkhorn(softmax of the rows of m, + ε)
func (f *formula) hyper(path string, x *node) []*node {
	n := f.Streams
	m := f.streamLogits(path+".", x)
	gates := f.sigmoid(f.columns(m, span(0, 2*n)))
	pre, post := f.columns(gates, span(0, n)), f.columns(gates, span(n, 2*n))
	if !f.is("hyper_pre_without_eps") {
		pre = f.shift(pre, f.HyperEps)
	}
	if f.is("hyper_post_not_doubled") {
		post = f.shift(post, f.HyperEps)
	} else {
		post = f.scale(post, 2)
	}
	comb := f.sinkhorn(f.reshape(f.columns(m, span(2*n, m.cols)), n))
	return []*node{post, f.reshape(comb, n*n), f.collapse(pre, x)}
}

// streamLogits returns scale·(F·flat(X) / sqrt(mean(flat²) + ε)) + base. Each part of the weights
// has a scale of its own: pre, post and comb.
func (f *formula) streamLogits(prefix string, x *node) *node {
	fn := f.param(prefix + "fn")
	scale := f.param(prefix + "scale")
	base := f.param(prefix + "base")
	fn = f.cast(f.flow(fn, "hyper_detached"), FP32)
	x32 := f.flow(f.cast(x, FP32), "hyper_detached")
	square := f.scale(f.sum(f.square(x32)), 1/float64(x.cols))
	rstd := f.rsqrt(square, f.Eps)
	if f.is("hyper_eps_outside") {
		root := f.apply(square, math.Sqrt, func(_, y float64) float64 { return 0.5 / y })
		rstd = f.reciprocal(f.shift(root, f.Eps))
	}
	m := f.linear(f.mul(x32, rstd), fn, nil)
	part := func(_, i int) int { return min(i/f.Streams, scale.cols-1) }
	return f.add(f.mul(m, f.take(scale, 1, m.cols, part)), base, 1)
}

// sinkhorn makes the sums of columns and rows of each matrix one, in turn: SinkhornSteps times the
// columns, and between them the rows. x: [tokens·streams, streams], a row of a matrix each.
func (f *formula) sinkhorn(x *node) *node {
	c, eps, n := f.softmax(x), f.HyperEps, f.Streams
	steps := pick(f, map[string]int{"hyper_10_iterations": 10}, f.SinkhornSteps)
	switch {
	case f.is("hyper_comb_sigmoid"):
		c = f.sigmoid(x)
	case f.is("hyper_comb_without_eps"):
		eps = 0
	}
	c = f.shift(c, eps)
	for range 2*steps - 1 {
		c = f.take(c, c.rows, n, func(r, i int) int { return (r/n*n+i)*n + r%n }) // transposed
		c = f.mul(c, f.reciprocal(f.shift(f.sum(c), eps)))
	}
	return f.take(c, c.rows, n, func(r, i int) int { return (r/n*n+i)*n + r%n })
}

// collapse is Σ weight_i·X_i, in the format of X.
func (f *formula) collapse(weights, x *node) *node {
	return f.cast(f.sumStreams(f.cast(x, FP32), weights, func(i int) int { return i }), x.dtype)
}

// sumStreams is Σ_i w·X_i, where w is column at(i) of the weights.
func (f *formula) sumStreams(x, weights *node, at func(i int) int) (sum *node) {
	width := x.cols / f.Streams
	for i := range f.Streams {
		part := f.mul(f.columns(x, span(i*width, (i+1)*width)), f.columns(weights, []int{at(i)}))
		sum = f.plus(sum, part)
	}
	return sum
}

// mix returns the streams behind a branch: post ⊗ y + combᵀ·X, in the format of X.
func (f *formula) mix(post, comb, y, x *node) *node {
	n, width := f.Streams, y.cols
	post, comb = f.cast(post, x.dtype), f.cast(comb, x.dtype)
	var rows []*node
	for k := range n {
		at := func(j int) int { return j*n + k }
		if f.is("comb_not_transposed") {
			at = func(j int) int { return k*n + j }
		}
		mixed := f.fused(func() *node { return f.sumStreams(x, comb, at) })
		if f.is("mix_missing") {
			mixed = f.columns(x, span(k*width, (k+1)*width))
		}
		rows = append(rows, f.add(f.mul(y, f.columns(post, []int{k})), f.flow(mixed, "mix_detached"), 1))
	}
	return f.join(rows...)
}

// mixBack passes gradients through both mixes of a layer. in: the gradients of the layer's output
// and of what the two hyper-connections read; post, comb and output of the attention and the
// layer's input; post, comb and output of the experts and the streams between. It returns the
// gradients of the layer's input, and of post, comb and output of both branches.
func (f *formula) mixBack(in []*node) (gradients []*node) {
	leaf := func(x *node, grad []float64) *node {
		y := *x
		y.grad, y.fixed = grad, false
		return &y
	}
	var parts []*node
	for _, x := range in[3:] {
		parts = append(parts, leaf(x, nil))
	}
	inputs := []*node{leaf(in[6], slices.Clone(in[2].data)), leaf(in[10], slices.Clone(in[1].data))}
	back := func(site int, grad []float64) {
		one, p := f.apart(), parts[4*site:]
		y := one.mix(p[0], p[1], p[2], inputs[site])
		y.grad = grad
		one.tape.run()
	}
	back(1, in[0].data)
	back(0, inputs[1].grad)
	for _, x := range []*node{inputs[0], parts[0], parts[1], parts[2], parts[4], parts[5], parts[6]} {
		g := gradient(x)
		gradients = append(gradients, &node{rows: x.rows, cols: x.cols, data: g.Data, dtype: x.dtype, store: x.store})
	}
	return gradients
}

// expand copies a token's hidden state into all its streams. A layer for further tokens adds the
// streams of the model to those.
func (f *formula) expand(in []*node) *node {
	x, n := in[0], f.Streams
	y := f.take(x, x.rows, n*x.cols, func(r, i int) int { return r*x.cols + i%x.cols })
	if len(in) > 1 {
		return f.add(y, in[1], 1)
	}
	return y
}

// collapseHead is the weighted sum of the streams at the end of the model.
func (f *formula) collapseHead(path string, x *node) *node {
	weights := f.shift(f.sigmoid(f.streamLogits(path+".hc_", x)), f.HyperEps)
	if f.is("streams_mean") {
		weights = f.shift(f.scale(weights, 0), 1/float64(f.Streams))
	}
	return f.collapse(weights, x)
}
