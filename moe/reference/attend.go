package reference

import "math"

// attend is o = softmax(q·kᵀ·scale)·v of each head, where each token sees what the mask allows.
//
// q, k: [tokens, heads·HeadDim]; v and o: [tokens, heads·ValueDim]. The softmax is in FP32. Eager
// code stores scores, probabilities and their gradients in its precision. Flash kernels keep the
// scores in FP32 and round only the operands of products.
func (f *formula) attend(q, k, v *node) *node {
	o := f.node(q.rows, f.Heads*f.ValueDim, promote(promote(q.dtype, k.dtype), v.dtype))
	a := &attending{formula: f, q: q, k: k, v: v, o: o}
	a.all(a.forward)
	return f.derive(o, func() {
		a.dq, a.dk, a.dv = make([]float64, len(q.data)), make([]float64, len(k.data)), make([]float64, len(v.data))
		a.all(a.backward)
		f.giveAll(q, a.dq)
		f.giveAll(k, a.dk)
		f.giveAll(v, a.dv)
	})
}

// attending is the attention of all heads.
type attending struct {
	*formula
	q, k, v, o *node
	dq, dk, dv []float64
}

// all runs one pass of each sequence and head.
func (a *attending) all(pass func(s, h int, see []bool)) {
	for s := range a.batch.Batch {
		see := a.visible(s)
		parallel(a.Heads, a.batch.Seq*a.batch.Seq*a.HeadDim, func(lo, hi int) {
			for h := lo; h < hi; h++ {
				pass(s, h, see)
			}
		})
	}
}

// head copies the rows of a head out of [tokens, heads·width].
func (a *attending) head(data []float64, s, h, width int) matrix {
	n := a.batch.Seq
	m := matrix{data: make([]float64, n*width), rows: n, cols: width}
	for i := range n {
		copy(m.data[i*width:(i+1)*width], data[((s*n+i)*a.Heads+h)*width:])
	}
	return m
}

// set copies the rows of a head back, rounded.
func (a *attending) set(data, part []float64, s, h, width int, format Format) {
	n := a.batch.Seq
	format.roundAll(part)
	for i := range n {
		copy(data[((s*n+i)*a.Heads+h)*width:][:width], part[i*width:(i+1)*width])
	}
}

// stored rounds what eager code stores in the model's precision and fused code keeps in FP32.
func (a *attending) stored(values []float64) {
	format := a.o.dtype
	if a.rounding.Way == KernelEnds && format != Exact {
		format = FP32
	}
	format.roundAll(values)
}

const softcap = 50 // of a mistake

// probabilities returns the softmax of the scores, before it is rounded to the model's precision,
// and the scores.
func (a *attending) probabilities(q, k matrix, see []bool) (p matrix, scores []float64) {
	s := a.product(q, k.transposed())
	a.stored(s)
	scale := a.scoreScale()
	for i := range s {
		s[i] *= scale
		if a.is("softcap") {
			s[i] = softcap * math.Tanh(s[i]/softcap)
		}
	}
	a.stored(s)
	p = matrix{data: make([]float64, len(s)), rows: q.rows, cols: k.rows}
	for i := range q.rows {
		row := s[i*k.rows : (i+1)*k.rows]
		for j := range row {
			if !see[i*k.rows+j] {
				row[j] = math.Inf(-1)
			}
		}
		total := softmaxRow(p.data[i*k.rows:(i+1)*k.rows], row, accumulator(a.o))
		for j := range row {
			if a.is("sink") {
				p.data[i*k.rows+j] *= sigmoid(total)
			}
		}
	}
	accumulator(a.o).roundAll(p.data)
	return p, s
}

// rounded returns a copy of an operand in the model's precision.
func (a *attending) rounded(m matrix) matrix {
	m.data = append([]float64(nil), m.data...)
	a.o.dtype.roundAll(m.data)
	return m
}

func (a *attending) forward(s, h int, see []bool) {
	q, k, v := a.head(a.q.data, s, h, a.HeadDim), a.head(a.k.data, s, h, a.HeadDim), a.head(a.v.data, s, h, a.ValueDim)
	p, _ := a.probabilities(q, k, see)
	a.set(a.o.data, a.product(a.rounded(p), v), s, h, a.ValueDim, a.o.store)
}

// backward: dv = pᵀ·do, dp = do·vᵀ, ds = p·(dp - mean of dp under p), dq = ds·k·scale and
// dk = dsᵀ·q·scale.
func (a *attending) backward(s, h int, see []bool) {
	q, k, v := a.head(a.q.data, s, h, a.HeadDim), a.head(a.k.data, s, h, a.HeadDim), a.head(a.v.data, s, h, a.ValueDim)
	do := a.head(a.o.grad, s, h, a.ValueDim)
	p, scores := a.probabilities(q, k, see)
	a.set(a.dv, a.product(a.rounded(p).transposed(), do), s, h, a.ValueDim, a.v.store)
	dp := a.product(do, v.transposed())
	a.stored(dp)
	o := a.head(a.o.data, s, h, a.ValueDim)
	for i := range p.rows {
		a.softmaxGradient(dp[i*p.cols:(i+1)*p.cols], p.data[i*p.cols:(i+1)*p.cols], do.data[i*do.cols:(i+1)*do.cols], o.data[i*o.cols:(i+1)*o.cols])
	}
	if a.is("softcap") {
		for i, v := range scores {
			dp[i] *= 1 - min(v*v/softcap/softcap, 1)
		}
	}
	scale := a.scoreScale()
	ds := matrix{data: dp, rows: p.rows, cols: p.cols}
	if a.rounding.Way == EveryOp {
		a.stored(ds.data)
		for i := range ds.data {
			ds.data[i] *= scale
		}
		scale = 1
	}
	a.o.dtype.roundAll(ds.data)
	dq, dk := a.product(ds, k), a.product(ds.transposed(), q)
	for i := range dq {
		dq[i] *= scale
		dk[i] *= scale
	}
	a.set(a.dq, dq, s, h, a.HeadDim, a.q.store)
	a.set(a.dk, dk, s, h, a.HeadDim, a.k.store)
}

// softmaxGradient replaces dp by p·(dp - mean). Flash kernels take the mean from the stored output:
// Σ dp·p = do·o.
func (a *attending) softmaxGradient(dp, p, do, o []float64) {
	var mean float64
	if a.rounding.Way == KernelEnds {
		for i := range o {
			mean += do[i] * o[i]
		}
	} else {
		for j := range p {
			mean += dp[j] * p[j]
		}
	}
	for j := range p {
		dp[j] = p[j] * (dp[j] - mean)
	}
}
