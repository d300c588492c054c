package reference

import "math"

// The operations of the tape. A derivative stands below each result.

// promote returns the format of a result of two formats.
func promote(a, b Format) Format {
	if a == Exact || b == Exact {
		return Exact
	}
	return max(a, b)
}

// zip returns f(a, b), element by element, where b may be one row or one column. da and db are the
// derivatives at a and b, where f is y.
func (t *tape) zip(a, b *node, f func(a, b float64) float64, da, db func(a, b, y float64) float64) *node {
	y := t.each(a.rows, a.cols, promote(a.dtype, b.dtype), func(r int, y []float64) {
		other, step := b.line(r)
		for i, v := range a.row(r) {
			y[i] = f(v, other[i*step])
		}
	})
	gradient := func(d func(a, b, y float64) float64) func(r int, g []float64) {
		return func(r int, g []float64) {
			at, from, to := y.row(r), a.row(r), y.gradRow(r)
			other, step := b.line(r)
			for i := range g {
				g[i] = to[i] * d(from[i], other[i*step], at[i])
			}
		}
	}
	return t.derive(y, func() {
		t.give(a, gradient(da))
		t.giveSum(b, y, gradient(db))
	})
}

// line returns row r of a node that may have only one, and the step from one column to the next: 0
// if there is one.
func (n *node) line(r int) (row []float64, step int) {
	return n.row(min(r, n.rows-1)), min(n.cols-1, 1)
}

// accumulator returns the format of sums: FP32 in all code that rounds.
func accumulator(n *node) Format {
	if n.dtype == Exact {
		return Exact
	}
	return FP32
}

// giveSum gives b a gradient in y's shape, summed over the rows or columns if b has only one. The
// terms are rounded to y's format before they are summed, as autograd does.
func (t *tape) giveSum(b, y *node, row func(r int, g []float64)) {
	if b.rows == y.rows && b.cols == y.cols || b.fixed {
		t.give(b, row)
		return
	}
	g, terms := make([]float64, len(b.data)), make([]float64, y.cols)
	for r := range y.rows {
		row(r, terms)
		y.store.roundAll(terms)
		for i, v := range terms {
			sum := &g[min(r, b.rows-1)*b.cols+min(i, b.cols-1)]
			*sum = accumulator(y).Round(*sum + v)
		}
	}
	t.giveAll(b, g)
}

func (t *tape) mul(a, b *node) *node {
	return t.zip(a, b, func(a, b float64) float64 { return a * b },
		func(_, b, _ float64) float64 { return b }, func(a, _, _ float64) float64 { return a })
}

// add returns a + by·b.
func (t *tape) add(a, b *node, by float64) *node {
	return t.zip(a, b, func(a, b float64) float64 { return a + by*b },
		func(_, _, _ float64) float64 { return 1 }, func(_, _, _ float64) float64 { return by })
}

// plus returns a + b, or b if a is nil.
func (t *tape) plus(a, b *node) *node {
	if a == nil {
		return b
	}
	return t.add(a, b, 1)
}

// apply returns f(x). df is the derivative at x, where f is y.
func (t *tape) apply(x *node, f func(x float64) float64, df func(x, y float64) float64) *node {
	none := t.constant(1, 1, []float64{0}, x.dtype)
	return t.zip(x, none, func(x, _ float64) float64 { return f(x) }, func(x, _, y float64) float64 { return df(x, y) }, nil)
}

func (t *tape) square(x *node) *node {
	return t.apply(x, func(x float64) float64 { return x * x }, func(x, _ float64) float64 { return 2 * x })
}

func (t *tape) scale(x *node, by float64) *node {
	return t.apply(x, func(x float64) float64 { return by * x }, func(_, _ float64) float64 { return by })
}

func (t *tape) shift(x *node, by float64) *node {
	return t.apply(x, func(x float64) float64 { return x + by }, func(_, _ float64) float64 { return 1 })
}

func (t *tape) reciprocal(x *node) *node {
	return t.apply(x, func(x float64) float64 { return 1 / x }, func(_, y float64) float64 { return -y * y })
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// sigmoid is 1 / (1 + exp(-x)), which code computes in steps of FP32: near 1, the sum loses more
// than the result. It goes backward from its rounded result, as autograd does.
func (t *tape) sigmoid(x *node) *node {
	f := accumulator(x)
	return t.apply(x, func(x float64) float64 { return f.Round(1 / f.Round(1+f.Round(math.Exp(-x)))) },
		func(_, y float64) float64 { return (1 - y) * y })
}

func (t *tape) clamp(x *node, lo, hi float64) *node {
	return t.apply(x, func(x float64) float64 { return min(max(x, lo), hi) }, func(x, y float64) float64 {
		if x != y {
			return 0
		}
		return 1
	})
}

// cast returns x in another format. Without rounding, there is one format.
func (t *tape) cast(x *node, dtype Format) *node {
	if x.dtype == dtype || x.dtype == Exact {
		return x
	}
	return t.copied(x, dtype)
}

func (t *tape) copied(x *node, dtype Format) *node {
	y := t.each(x.rows, x.cols, dtype, func(r int, y []float64) { copy(y, x.row(r)) })
	return t.derive(y, func() { t.give(x, func(r int, g []float64) { copy(g, y.gradRow(r)) }) })
}

// take returns elements of x: at(r, i) is the place in x of element (r, i).
func (t *tape) take(x *node, rows, cols int, at func(r, i int) int) *node {
	y := t.each(rows, cols, x.dtype, func(r int, y []float64) {
		for i := range y {
			y[i] = x.data[at(r, i)]
		}
	})
	return t.derive(y, func() {
		g := make([]float64, len(x.data))
		for r := range rows {
			for i, v := range y.gradRow(r) {
				g[at(r, i)] += v
			}
		}
		t.giveAll(x, g)
	})
}

// reshape returns x with rows of other length.
func (t *tape) reshape(x *node, cols int) *node {
	if x.cols == cols {
		return x
	}
	y := t.node(0, cols, x.dtype) // with the elements of x, which are rounded
	y.rows, y.data, y.fixed = len(x.data)/cols, x.data, x.fixed
	return t.derive(y, func() { t.give(x, func(r int, g []float64) { copy(g, y.grad[r*x.cols:]) }) })
}

func (t *tape) transpose(x *node) *node {
	return t.take(x, x.cols, x.rows, func(r, i int) int { return i*x.cols + r })
}

// columns returns some columns of x.
func (t *tape) columns(x *node, which []int) *node {
	return t.take(x, x.rows, len(which), func(r, i int) int { return r*x.cols + which[i] })
}

// span returns lo, lo+1, … hi-1.
func span(lo, hi int) (list []int) {
	for i := lo; i < hi; i++ {
		list = append(list, i)
	}
	return list
}

// spread returns each row of x n times.
func (t *tape) spread(x *node, n int) *node {
	return t.take(x, x.rows*n, x.cols, func(r, i int) int { return r/n*x.cols + i })
}

// join returns the columns of all parts next to each other.
func (t *tape) join(parts ...*node) *node {
	cols := 0
	for _, p := range parts {
		cols += p.cols
	}
	y := t.each(parts[0].rows, cols, parts[0].dtype, func(r int, y []float64) {
		for _, p := range parts {
			y = y[copy(y, p.row(r)):]
		}
	})
	return t.derive(y, func() {
		from := 0
		for _, p := range parts {
			t.give(p, func(r int, g []float64) { copy(g, y.gradRow(r)[from:]) })
			from += p.cols
		}
	})
}

// sum returns the sum of each row, [rows, 1].
func (t *tape) sum(x *node) *node {
	y := t.each(x.rows, 1, x.dtype, func(r int, y []float64) {
		for _, v := range x.row(r) {
			y[0] = accumulator(x).Round(y[0] + v)
		}
	})
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			for i := range g {
				g[i] = y.grad[r]
			}
		})
	})
}

// softmax returns that of each row.
func (t *tape) softmax(x *node) *node { return t.softmaxOf(x, nil) }

// softmaxOf returns the softmax of each row. mean returns Σ p·dp of a row if code has it otherwise.
func (t *tape) softmaxOf(x *node, mean func(r int) float64) *node {
	y := t.each(x.rows, x.cols, x.dtype, func(r int, y []float64) { softmaxRow(y, x.row(r), accumulator(x)) })
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			var sum float64
			p, dp := y.row(r), y.gradRow(r)
			for i := range p {
				sum = accumulator(x).Round(sum + p[i]*dp[i])
			}
			if mean != nil {
				sum = mean(r)
			}
			for i := range g {
				g[i] = p[i] * (dp[i] - sum)
			}
		})
	})
}

// softmaxRow writes the softmax of x, which may hold -Inf, and returns log Σ exp(x). Each step is
// rounded to a format.
func softmaxRow(y, x []float64, f Format) float64 {
	most, total := math.Inf(-1), 0.0
	for _, v := range x {
		most = max(most, v)
	}
	if math.IsInf(most, -1) { // nothing is seen
		clear(y)
		return most
	}
	for i, v := range x {
		y[i] = f.Round(math.Exp(v - most))
		total = f.Round(total + y[i])
	}
	for i := range y {
		y[i] = f.Round(y[i] / total)
	}
	return most + math.Log(total)
}

// linear returns x·wᵀ + bias. x: [rows, in], w: [out, in]; bias may be nil.
func (t *tape) linear(x, w, bias *node) *node {
	if low := t.rounding.Autocast; low != Exact {
		x, w = t.cast(x, low), t.cast(w, low)
	}
	y, q, ties := t.node(x.rows, w.rows, promote(x.dtype, w.dtype)), t.recipe, t.rounding.Ties
	t.recipe = nil
	y.data = t.product(q.operands(forward, ties, view(x), view(w).transposed()))
	parallel(y.rows, y.cols, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			for i := 0; bias != nil && i < y.cols; i++ {
				y.row(r)[i] += bias.data[i]
			}
			y.store.roundAll(y.row(r))
		}
	})
	return t.derive(y, func() {
		dy := matrix{data: y.grad, rows: y.rows, cols: y.cols}
		if !x.fixed {
			t.giveAll(x, t.product(q.operands(dgrad, ties, dy, view(w))))
		}
		t.giveAll(w, t.product(q.operands(wgrad, ties, dy.transposed(), view(x))))
		if bias != nil {
			t.giveSum(bias, y, func(r int, g []float64) { copy(g, y.gradRow(r)) })
		}
	})
}
