package vec

// The kernels in plain Go: the reference for the other tiers and the code for any CPU.

import "math"

func widenGeneric(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, b := range src {
		dst[i] = math.Float32frombits(uint32(b) << 16)
	}
}

func roundGeneric(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		bits := math.Float32bits(f)
		if f != f {
			dst[i] = uint16(bits>>16 | 0x40)
			continue
		}
		dst[i] = uint16((bits + 0x7fff + bits>>16&1) >> 16)
	}
}

func addGeneric(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
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

func mulScaledGeneric(dst []float32, a float32, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = a * x[i] * y[i]
	}
}

func addMulScaledGeneric(dst []float32, a float32, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] += float32(a * x[i] * y[i])
	}
}

func swiGLUGeneric(h, gate, up []float32) {
	gate, up = gate[:len(h)], up[:len(h)]
	for i, g := range gate {
		h[i] = g / (1 + Exp(-g)) * up[i]
	}
}

func swiGLUBackwardGeneric(dgate, dup, dh, gate, up []float32) {
	dgate, dup, gate, up = dgate[:len(dh)], dup[:len(dh)], gate[:len(dh)], up[:len(dh)]
	for i, d := range dh {
		g := gate[i]
		s := 1 / (1 + Exp(-g))
		dgate[i] = d * up[i] * s * (1 + float32(g*(1-s)))
		dup[i] = d * g * s
	}
}

func softmaxBackwardGeneric(ds []float32, a, delta float32, p, dp []float32) {
	p, dp = p[:len(ds)], dp[:len(ds)]
	for i := range ds {
		ds[i] = a * p[i] * (dp[i] - delta)
	}
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

// fold adds the upper half of the lanes to the lower half until one is left.
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

func finiteGeneric(x []float32) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}
