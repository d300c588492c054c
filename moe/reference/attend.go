package reference

import "math"

// attend is the attention of all heads. q, k: [tokens, heads·HeadDim]; v and the result: [tokens,
// heads·ValueDim].
//
// Each head has a tape of its own. It runs again before it runs backward, so that the scores of one
// head only are held.
func (f *formula) attend(q, k, v *node) *node {
	in := []*node{q, k, v}
	o := f.node(q.rows, f.Heads*f.ValueDim, promote(promote(q.dtype, k.dtype), v.dtype))
	head := func(s, h int, mask *node) (one *formula, parts []*node, y *node) {
		one = &formula{tape: tape{rounding: f.rounding, fast: f.fast}, Config: f.Config, mistake: f.mistake, numbers: f.numbers}
		if f.rounding.Way == KernelEnds {
			one.lost = 2 // of an FP32 operand that a GPU splits into two of TF32
		}
		for _, x := range in {
			part := &node{rows: f.batch.Seq, cols: x.cols / f.Heads, dtype: x.dtype, store: x.store}
			part.data = f.headRows(x.data, s, h, part.cols)
			parts = append(parts, part)
		}
		return one, parts, one.oneHead(parts[0], parts[1], parts[2], mask)
	}
	f.eachHead(o.dtype, func(s, h int, mask *node) {
		_, _, y := head(s, h, mask)
		f.setHeadRows(o.data, y.data, s, h, y.cols)
	})
	return f.derive(o, func() {
		gradients := [3][]float64{make([]float64, len(q.data)), make([]float64, len(k.data)), make([]float64, len(v.data))}
		f.eachHead(o.dtype, func(s, h int, mask *node) {
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
func (f *formula) oneHead(q, k, v, mask *node) (y *node) {
	fused := f.rounding.Way == KernelEnds
	y = f.kernel(func() *node {
		product := f.linear(q, k, nil)
		scores := f.scale(product, f.scoreScale())
		if f.is("softcap") {
			const most = 50
			tanh := func(x float64) float64 { return most * math.Tanh(x/most) }
			scores = f.apply(scores, tanh, func(_, y float64) float64 { return 1 - y*y/most/most })
		}
		scores = f.cast(f.add(scores, mask, 1), FP32)
		if f.is("sink") {
			scores = f.join(scores, f.constant(q.rows, 1, make([]float64, q.rows), scores.dtype))
		}
		var mean func(r int) float64
		if fused { // it has the rounded result at hand, which no longer cancels all of a small gradient
			product.store = q.dtype
			mean = func(r int) float64 { return accumulator(y).round(dot(y.row(r), y.gradRow(r))) }
		}
		p := f.softmaxOf(scores, mean)
		if f.is("sink") {
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

// eachHead calls do for all heads of all sequences, with the mask of the sequence.
func (f *formula) eachHead(dtype Format, do func(s, h int, mask *node)) {
	n := f.batch.Seq
	for s := range f.batch.Batch {
		mask := f.constant(n, n, f.mask(s), dtype)
		parallel(f.Heads, n*n*f.HeadDim, func(lo, hi int) {
			for h := lo; h < hi; h++ {
				do(s, h, mask)
			}
		})
	}
}

// headRows copies the rows of a head out of [tokens, heads·width].
func (f *formula) headRows(all []float64, s, h, width int) (rows []float64) {
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
