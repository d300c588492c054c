package vec

import "spmoe/tensor/exact"

// The bfloat16 kernels in plain Go. They widen, compute as in vec_generic.go, and round.

func add16Generic(dst, x, y []uint16) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = rounded(widened(x[i]) + widened(y[i]))
	}
}

func addScaled16Generic(dst []float32, a float32, x []uint16) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += float32(a * widened(x[i]))
	}
}

func scale16Generic(dst []uint16, a float32, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = rounded(a * x[i])
	}
}

func sumBlocks16Generic(dst, x []uint16, blocks, stride int) {
	for i := range dst {
		var sum float32
		for b := range blocks {
			sum += widened(x[b*stride+i])
		}
		dst[i] = rounded(sum)
	}
}

func splitGeneric(dst, w []float32) {
	for i, x := range w {
		dst[splitIndex(i)] = defaultNaN(x)
	}
}

// splitIndex returns the position of element i in the order of Split.
func splitIndex(i int) int { return i&^31 + i%2*16 + i%32/2 }

func mulScaled16Generic(dst []uint16, a float32, x []uint16, y []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = rounded(a * widened(x[i]) * y[splitIndex(i)])
	}
}

func normWeightGrad16Generic(dw []float32, a float32, dy, x []uint16, w []float32) float32 {
	var s [64]float32
	for i := range dw {
		product := float32(widened(dy[i]) * widened(x[i]))
		s[i%len(s)] += float32(product * w[i])
		dw[i] += float32(a * product)
	}
	return fold(s[:])
}

func normInputGrad16Generic(dx []uint16, add bool, a float32, dy []uint16, w []float32, b float32, x []uint16) {
	for i := range dx {
		grad := float32(a*widened(dy[i])*w[splitIndex(i)]) + float32(b*widened(x[i]))
		if add {
			grad += widened(dx[i])
		}
		dx[i] = rounded(grad)
	}
}

func rotate16Generic(x []uint16, stride, count, pairs int, cos, sin []float32, sign float32) {
	for r := range count {
		row := x[r*stride:]
		for i := range pairs {
			at := r*pairs + i
			u, v := rotatePair(widened(row[2*i]), widened(row[2*i+1]), cos[at], sign*sin[at])
			row[2*i], row[2*i+1] = rounded(u), rounded(v)
		}
	}
}

func swiGLU16Generic(h, gate, up []uint16) {
	gate, up = gate[:len(h)], up[:len(h)]
	for i, g := range gate {
		h[i] = rounded(silu(widened(g)) * widened(up[i]))
	}
}

func swiGLUBackward16Generic(dgate, dup, dh, gate, up []uint16) {
	dgate, dup, gate, up = dgate[:len(dh)], dup[:len(dh)], gate[:len(dh)], up[:len(dh)]
	for i, d := range dh {
		dg, du := swiGLUGrads(widened(d), widened(gate[i]), widened(up[i]))
		dgate[i], dup[i] = rounded(dg), rounded(du)
	}
}

func expSum16Generic(dst []uint16, a float32, x []float32, shift float32) float32 {
	x = x[:len(dst)]
	var s [16]float32
	for i := range dst {
		e := Exp(float32(a*x[i]) - shift)
		dst[i] = rounded(e)
		s[i%len(s)] += e
	}
	return fold(s[:])
}

func softmaxBackward16Generic(p, ds []uint16, a float32, s, dp []float32, lse, delta float32) {
	for i := range p {
		prob, grad := softmaxGrads(a, s[i], dp[i], lse, delta)
		p[i], ds[i] = rounded(prob), rounded(grad)
	}
}

func dot16Generic(x, y []uint16) float32 {
	y = y[:len(x)]
	var s [64]float32
	for i := range x {
		s[i%len(s)] += float32(widened(x[i]) * widened(y[i]))
	}
	return fold(s[:])
}

func squares16Generic(x []uint16) float32 {
	var s [64]float32
	for i, b := range x {
		lane := &s[splitIndex(i%len(s))]
		*lane = exact.FMA(widened(b), widened(b), *lane)
	}
	return fold(s[:])
}
