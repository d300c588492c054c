package vec

import "spmoe/tensor/exact"

// The bfloat16 kernels in plain Go. They widen, compute as in vec_generic.go, and round.

func add16Generic(dst, x, y []uint16) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = ToBF16(FromBF16(x[i]) + FromBF16(y[i]))
	}
}

func addScaled16Generic(dst []float32, a float32, x []uint16) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += float32(a * FromBF16(x[i]))
	}
}

func scale16Generic(dst []uint16, a float32, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = ToBF16(a * x[i])
	}
}

func sumBlocks16Generic(dst, x []uint16, blocks, stride int) {
	for i := range dst {
		var sum float32
		for b := range blocks {
			sum += FromBF16(x[b*stride+i])
		}
		dst[i] = ToBF16(sum)
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
		dst[i] = ToBF16(a * FromBF16(x[i]) * y[splitIndex(i)])
	}
}

func normWeightGrad16Generic(dw []float32, a float32, dy, x []uint16, w []float32) float32 {
	var s [64]float32
	for i := range dw {
		product := float32(FromBF16(dy[i]) * FromBF16(x[i]))
		s[i%len(s)] += float32(product * w[i])
		dw[i] += float32(a * product)
	}
	return fold(s[:])
}

func normInputGrad16Generic(dx []uint16, add bool, a float32, dy []uint16, w []float32, b float32, x []uint16) {
	for i := range dx {
		grad := float32(a*FromBF16(dy[i])*w[splitIndex(i)]) + float32(b*FromBF16(x[i]))
		if add {
			grad += FromBF16(dx[i])
		}
		dx[i] = ToBF16(grad)
	}
}

func rotate16Generic(x []uint16, stride, count, pairs int, cos, sin []float32, sign float32) {
	for r := range count {
		row := x[r*stride:]
		for i := range pairs {
			at := r*pairs + i
			u, v := rotatePair(FromBF16(row[2*i]), FromBF16(row[2*i+1]), cos[at], sign*sin[at])
			row[2*i], row[2*i+1] = ToBF16(u), ToBF16(v)
		}
	}
}

func swiGLU16Generic(h, gate, up []uint16) {
	gate, up = gate[:len(h)], up[:len(h)]
	for i, g := range gate {
		h[i] = ToBF16(silu(FromBF16(g)) * FromBF16(up[i]))
	}
}

func swiGLUBackward16Generic(dgate, dup, dh, gate, up []uint16) {
	dgate, dup, gate, up = dgate[:len(dh)], dup[:len(dh)], gate[:len(dh)], up[:len(dh)]
	for i, d := range dh {
		dg, du := swiGLUGrads(FromBF16(d), FromBF16(gate[i]), FromBF16(up[i]))
		dgate[i], dup[i] = ToBF16(dg), ToBF16(du)
	}
}

func expSum16Generic(dst []uint16, a float32, x []float32, shift float32) float32 {
	x = x[:len(dst)]
	var s [16]float32
	for i := range dst {
		e := Exp(float32(a*x[i]) - shift)
		dst[i] = ToBF16(e)
		s[i%len(s)] += e
	}
	return fold(s[:])
}

func softmaxBackward16Generic(p, ds []uint16, a float32, s, dp []float32, lse, delta float32) {
	for i := range p {
		prob, grad := softmaxGrads(a, s[i], dp[i], lse, delta)
		p[i], ds[i] = ToBF16(prob), ToBF16(grad)
	}
}

func dot16Generic(x, y []uint16) float32 {
	y = y[:len(x)]
	var s [64]float32
	for i := range x {
		s[i%len(s)] += float32(FromBF16(x[i]) * FromBF16(y[i]))
	}
	return fold(s[:])
}

func squares16Generic(x []uint16) float32 {
	var s [64]float32
	for i, b := range x {
		lane := &s[splitIndex(i%len(s))]
		*lane = exact.FMA(FromBF16(b), FromBF16(b), *lane)
	}
	return fold(s[:])
}
