package main

// The sigmoid function, and SwiGLU with its gradient.

import "spmoe/tensor/asmgen"

// denominator returns 1 + exp(-g), one over the sigmoid of g, or some number where g is NaN.
func (k *kernel) denominator(c expConstants, g asmgen.Vec) asmgen.Vec {
	d := k.copyOf(g)
	k.clampNumber(c, d)
	k.exp(c, d)
	k.I("VADDPS", c.one, d, d)
	return d
}

func sigmoid(f *file) {
	k := f.kernel("sigmoid", rows("dst", "x"))
	r := k.rows(fp32, "dst", "x")
	c := k.expConstants(true)
	k.each("dst_len", lanes, 1, func(int) {
		x := k.load(r[1])
		k.both(func(h int) []asmgen.Vec {
			k.clamp(c, x[h])
			k.exp(c, x[h])
			k.I("VADDPS", c.one, x[h], x[h])
			k.I("VDIVPS", x[h], c.one, x[h])
			return nil
		})
		k.store(x, r[0])
	})
	k.Return()
}

func swiGLU(f *file) {
	for _, e := range forms {
		k := f.kernel(named("swiGLU", e), rows("h", "gate", "up"))
		k.splitIf(e)
		r := k.rows(e, "h", "gate", "up")
		k.rounding(e)
		c := k.expConstants(true)
		k.each("h_len", lanes, 1, func(int) {
			g, u := k.load(r[1]), k.load(r[2])
			k.both(func(h int) []asmgen.Vec {
				k.I("VDIVPS", k.denominator(c, g[h]), g[h], g[h])
				k.I("VMULPS", g[h], u[h], u[h])
				return nil
			})
			k.store(u, r[0])
		})
		k.Return()
	}
}

func swiGLUBackward(f *file) {
	for _, e := range forms {
		k := f.kernel(named("swiGLUBackward", e), rows("dgate", "dup", "dh", "gate", "up"))
		k.splitIf(e)
		r := k.rows(e, "dgate", "dup", "dh", "gate", "up")
		k.rounding(e)
		c := k.expConstants(true)
		k.each("dh_len", lanes, 1, func(int) {
			d, g, u := k.load(r[2]), k.load(r[3]), k.load(r[4])
			k.both(func(h int) []asmgen.Vec {
				s := k.op("VDIVPS", k.denominator(c, g[h]), c.one)
				slope := k.op("VSUBPS", s, c.one)
				k.I("VMULPS", g[h], slope, slope)
				k.I("VADDPS", c.one, slope, slope)
				k.I("VMULPS", d[h], u[h], u[h])
				k.I("VMULPS", s, u[h], u[h])
				k.I("VMULPS", slope, u[h], u[h])
				k.I("VMULPS", d[h], g[h], g[h])
				k.I("VMULPS", s, g[h], g[h])
				return nil
			})
			k.store(u, r[0])
			k.store(g, r[1])
		})
		k.Return()
	}
}
