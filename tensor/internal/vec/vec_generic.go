package vec

// The kernels in plain Go. They are the reference for the other tiers and run on any CPU.

import "math"

func widenGeneric(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, b := range src {
		dst[i] = FromBF16(b)
	}
}

// FromBF16 returns the value of a bfloat16.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

func roundGeneric(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = ToBF16(f)
	}
}

// ToBF16 rounds to bfloat16, to nearest even. Subnormals stay. A NaN stays a NaN and becomes quiet.
func ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16 | 0x40)
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func addGeneric(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func divideGeneric(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] / y[i]
	}
}

func addScaledGeneric(dst []float32, a float32, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] += float32(a * x[i])
	}
}

func scaleGeneric(dst []float32, a float32, x []float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = a * x[i]
	}
}

func sumBlocksGeneric(dst, x []float32, blocks, stride int) {
	for i := range dst {
		var sum float32
		for b := range blocks {
			sum += x[b*stride+i]
		}
		dst[i] = sum
	}
}

func mulScaledGeneric(dst []float32, a float32, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = a * x[i] * y[i]
	}
}

func normWeightGradGeneric(dw []float32, a float32, dy, x, w []float32) float32 {
	var s [64]float32
	for i := range dw {
		product := float32(dy[i] * x[i])
		s[i%len(s)] += float32(product * w[i])
		dw[i] += float32(a * product)
	}
	return fold(s[:])
}

func normInputGradGeneric(dx []float32, add bool, a float32, dy, w []float32, b float32, x []float32) {
	for i := range dx {
		grad := float32(a*dy[i]*w[i]) + float32(b*x[i])
		if add {
			grad += dx[i]
		}
		dx[i] = grad
	}
}

func rotateGeneric(x []float32, stride, count, pairs int, cos, sin []float32, sign float32) {
	for r := range count {
		row := x[r*stride:]
		for i := range pairs {
			at := r*pairs + i
			row[2*i], row[2*i+1] = rotatePair(row[2*i], row[2*i+1], cos[at], sign*sin[at])
		}
	}
}

func rotatePair(u, v, cos, sin float32) (float32, float32) {
	return float32(u*cos) - float32(v*sin), float32(u*sin) + float32(v*cos)
}

func sigmoidGeneric(dst, x []float32) {
	x = x[:len(dst)]
	for i, z := range x {
		dst[i] = 1 / (1 + Exp(-z))
	}
}

func swiGLUGeneric(h, gate, up []float32) {
	gate, up = gate[:len(h)], up[:len(h)]
	for i, g := range gate {
		h[i] = silu(g) * up[i]
	}
}

func silu(z float32) float32 { return z / (1 + Exp(-z)) }

func swiGLUBackwardGeneric(dgate, dup, dh, gate, up []float32) {
	dgate, dup, gate, up = dgate[:len(dh)], dup[:len(dh)], gate[:len(dh)], up[:len(dh)]
	for i, d := range dh {
		dgate[i], dup[i] = swiGLUGrads(d, gate[i], up[i])
	}
}

func swiGLUGrads(d, g, u float32) (dgate, dup float32) {
	s := 1 / (1 + Exp(-g))
	return d * u * s * (1 + float32(g*(1-s))), d * g * s
}

func expSumGeneric(dst []float32, a float32, x []float32, shift float32) float32 {
	x = x[:len(dst)]
	var s [16]float32
	for i := range dst {
		e := Exp(float32(a*x[i]) - shift)
		dst[i] = e
		s[i%len(s)] += e
	}
	return fold(s[:])
}

func softmaxBackwardGeneric(p, ds []float32, a float32, s, dp []float32, lse, delta float32) {
	for i := range p {
		p[i], ds[i] = softmaxGrads(a, s[i], dp[i], lse, delta)
	}
}

func softmaxGrads(a, s, dp, lse, delta float32) (p, ds float32) {
	p = Exp(float32(a*s) - lse)
	return p, a * p * (dp - delta)
}

func dotGeneric(x, y []float32) float32 {
	var s [64]float32
	for ; len(x) >= len(s); x, y = x[len(s):], y[len(s):] {
		y := y[:len(s)]
		for i := range s {
			s[i] += float32(x[i] * y[i])
		}
	}
	y = y[:len(x)]
	for i := range x {
		s[i] += float32(x[i] * y[i])
	}
	return fold(s[:])
}

func sumSquaresGeneric(x []float32) float64 {
	var s [32]float64
	for ; len(x) >= len(s); x = x[len(s):] {
		for i := range s {
			s[i] += float64(x[i]) * float64(x[i])
		}
	}
	for i := range x {
		s[i] += float64(x[i]) * float64(x[i])
	}
	return fold(s[:])
}

// fold adds the upper half of the lanes to the lower half until one lane is left.
func fold[T float32 | float64](s []T) T {
	for w := len(s) / 2; w > 0; w /= 2 {
		for i := range w {
			s[i] += s[i+w]
		}
	}
	return s[0]
}

func maxGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}
