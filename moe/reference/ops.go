package reference

import "math"

// The operations of the tape. Each states its result; its derivative stands below it.

// promote returns the format of an operation on two formats.
func promote(a, b Format) Format {
	if a == Exact || b == Exact {
		return Exact
	}
	return max(a, b)
}

// broadcast returns element (r, i) of x, of which there may be only one row or one column.
func (n *node) at(r, i int) float64 {
	if n.rows == 1 {
		r = 0
	}
	if n.cols == 1 {
		i = 0
	}
	return n.data[r*n.cols+i]
}

// cast returns x in another format. Without rounding, there are none.
func (t *tape) cast(x *node, dtype Format) *node {
	if x.dtype == dtype || x.dtype == Exact {
		return x
	}
	y := t.each(x.rows, x.cols, dtype, func(r int, y []float64) { copy(y, x.row(r)) })
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) { copy(g, y.gradRow(r)) })
	})
}

// apply returns f(x). df is the derivative at x, where f is y.
func (t *tape) apply(x *node, f func(x float64) float64, df func(x, y float64) float64) *node {
	y := t.each(x.rows, x.cols, x.dtype, func(r int, y []float64) {
		for i, v := range x.row(r) {
			y[i] = f(v)
		}
	})
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			from, at, to := x.row(r), y.row(r), y.gradRow(r)
			for i := range g {
				g[i] = to[i] * df(from[i], at[i])
			}
		})
	})
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

func (t *tape) sigmoid(x *node) *node {
	return t.apply(x, sigmoid, func(_, y float64) float64 { return y * (1 - y) })
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// add returns a + by·b. A b of one row or one column is added to each.
func (t *tape) add(a, b *node, by float64) *node {
	y := t.each(a.rows, a.cols, promote(a.dtype, b.dtype), func(r int, y []float64) {
		for i, v := range a.row(r) {
			y[i] = v + by*b.at(r, i)
		}
	})
	return t.derive(y, func() {
		t.give(a, func(r int, g []float64) { copy(g, y.gradRow(r)) })
		t.giveSum(b, y, func(r, i int, g float64) float64 { return by * g })
	})
}

// mul returns a·b, element by element. Either may have one row or one column.
func (t *tape) mul(a, b *node) *node {
	if a.rows < b.rows || a.cols < b.cols {
		a, b = b, a
	}
	y := t.each(a.rows, a.cols, promote(a.dtype, b.dtype), func(r int, y []float64) {
		for i, v := range a.row(r) {
			y[i] = v * b.at(r, i)
		}
	})
	return t.derive(y, func() {
		t.give(a, func(r int, g []float64) {
			for i, v := range y.gradRow(r) {
				g[i] = v * b.at(r, i)
			}
		})
		t.giveSum(b, y, func(r, i int, g float64) float64 { return g * a.data[r*a.cols+i] })
	})
}

// giveSum gives b the gradient that f makes of y's, summed over the rows or columns for which b has
// one only. The terms are rounded to y's format before they are summed, as autograd does.
func (t *tape) giveSum(b, y *node, f func(r, i int, g float64) float64) {
	row := func(r int, g []float64) {
		for i, v := range y.gradRow(r) {
			g[i] = f(r, i, v)
		}
	}
	switch {
	case b.rows == y.rows && b.cols == y.cols:
		t.give(b, row)
	case b.rows == y.rows:
		t.give(b, func(r int, g []float64) {
			terms := make([]float64, y.cols)
			row(r, terms)
			y.store.roundAll(terms)
			for _, v := range terms {
				g[0] += v
			}
		})
	default:
		t.give(b, func(_ int, g []float64) {
			terms := make([]float64, y.cols)
			for r := range y.rows {
				row(r, terms)
				y.store.roundAll(terms)
				for i, v := range terms {
					g[i%len(g)] += v
				}
			}
		})
	}
}

// sum returns the sum of each row, [rows, 1].
func (t *tape) sum(x *node) *node {
	y := t.each(x.rows, 1, x.dtype, func(r int, y []float64) {
		for _, v := range x.row(r) {
			y[0] += v
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
func (t *tape) softmax(x *node) *node {
	y := t.each(x.rows, x.cols, x.dtype, func(r int, y []float64) { softmaxRow(y, x.row(r)) })
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			var mean float64
			p, dp := y.row(r), y.gradRow(r)
			for i := range p {
				mean += p[i] * dp[i]
			}
			for i := range g {
				g[i] = p[i] * (dp[i] - mean)
			}
		})
	})
}

// softmaxRow writes the softmax of x, which may hold -Inf, and returns the logarithm of its
// denominator.
func softmaxRow(y, x []float64) float64 {
	most, total := math.Inf(-1), 0.0
	for _, v := range x {
		most = math.Max(most, v)
	}
	if math.IsInf(most, -1) { // nothing is seen
		clear(y)
		return most
	}
	for i, v := range x {
		y[i] = math.Exp(v - most)
		total += y[i]
	}
	for i := range y {
		y[i] /= total
	}
	return most + math.Log(total)
}

// reshape returns x with rows of other length.
func (t *tape) reshape(x *node, cols int) *node {
	if x.cols == cols {
		return x
	}
	y := *x
	y.rows, y.cols, y.grad = len(x.data)/max(cols, 1), cols, nil
	return t.derive(&y, func() { t.give(x, func(r int, g []float64) { copy(g, y.grad[r*x.cols:]) }) })
}

// pick returns some columns of x.
func (t *tape) pick(x *node, columns []int) *node {
	y := t.each(x.rows, len(columns), x.dtype, func(r int, y []float64) {
		from := x.row(r)
		for i, c := range columns {
			y[i] = from[c]
		}
	})
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			for i, v := range y.gradRow(r) {
				g[columns[i]] += v
			}
		})
	})
}

// rowsOf returns some rows of x. A gradient of -1 rows is nowhere.
func (t *tape) rowsOf(x *node, rows []int) *node {
	y := t.each(len(rows), x.cols, x.dtype, func(r int, y []float64) { copy(y, x.row(rows[r])) })
	return t.derive(y, func() {
		from := inverse(rows, x.rows)
		t.give(x, func(r int, g []float64) {
			for _, k := range from[r] {
				for i, v := range y.gradRow(k) {
					g[i] += v
				}
			}
		})
	})
}

// inverse returns, for each of n values, where in list it stands.
func inverse(list []int, n int) [][]int {
	at := make([][]int, n)
	for i, v := range list {
		at[v] = append(at[v], i)
	}
	return at
}

// transpose returns xᵀ.
func (t *tape) transpose(x *node) *node {
	y := t.each(x.cols, x.rows, x.dtype, func(r int, y []float64) {
		for i := range y {
			y[i] = x.data[i*x.cols+r]
		}
	})
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			for i := range g {
				g[i] = y.grad[i*y.cols+r]
			}
		})
	})
}

// join returns the columns of all parts next to each other.
func (t *tape) join(parts ...*node) *node {
	cols, dtype := 0, parts[0].dtype
	for _, p := range parts {
		cols += p.cols
	}
	y := t.each(parts[0].rows, cols, dtype, func(r int, y []float64) {
		for _, p := range parts {
			y = y[copy(y, p.row(r)):]
		}
	})
	return t.derive(y, func() {
		from := 0
		for _, p := range parts {
			at := from
			t.give(p, func(r int, g []float64) { copy(g, y.gradRow(r)[at:]) })
			from += p.cols
		}
	})
}

// gather returns, of each row, the columns that index [rows, k] names.
func (t *tape) gather(x *node, index []int, k int) *node {
	y := t.each(x.rows, k, x.dtype, func(r int, y []float64) {
		for i := range y {
			y[i] = x.row(r)[index[r*k+i]]
		}
	})
	return t.derive(y, func() {
		t.give(x, func(r int, g []float64) {
			for i, v := range y.gradRow(r) {
				g[index[r*k+i]] += v
			}
		})
	})
}

// linear returns x·wᵀ + bias. bias may be nil. x: [rows, in], w: [out, in].
func (t *tape) linear(x, w, bias *node) *node {
	if low := t.rounding.Autocast; low != Exact {
		x, w = t.cast(x, low), t.cast(w, low)
	}
	y := t.node(x.rows, w.rows, promote(x.dtype, w.dtype))
	copy(y.data, t.product(view(x), view(w).transposed()))
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
			t.giveAll(x, t.product(dy, view(w)))
		}
		if !w.fixed {
			t.giveAll(w, t.product(dy.transposed(), view(x)))
		}
		if bias != nil {
			t.giveSum(bias, y, func(_, _ int, g float64) float64 { return g })
		}
	})
}
