package main

// The exponential function as in ../exp.go, and the kernels built on it.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// expConstants are the registers that exp works with.
type expConstants struct {
	log2E, magic, ln2Hi, ln2Lo, one, least, most, inf asmgen.Vec
	poly                                              []asmgen.Vec
}

func (k *kernel) expConstants() expConstants {
	c := func(x float32) asmgen.Vec { return k.word(math.Float32bits(x)) }
	return expConstants{
		log2E: c(math.Log2E), magic: c(12582912),
		ln2Hi: c(0.693359375), ln2Lo: c(-2.12194440e-4),
		one:   c(1),
		least: c(-87.33654), most: c(88.72283), inf: c(float32(math.Inf(1))),
		poly: []asmgen.Vec{
			c(1.9875691500e-4), c(1.3981999507e-3), c(8.3334519073e-3),
			c(4.1665795894e-2), c(1.6666665459e-1), c(5.0000001201e-1),
		},
	}
}

// exp returns e**x in a fresh register. VSCALEFPS adds n to the exponent with one rounding, where Exp multiplies by two
// powers of two: the first product is exact, so both round once.
func (k *kernel) exp(c expConstants, x asmgen.Vec) asmgen.Vec {
	n := k.op("VMULPS", c.log2E, x)
	k.I("VADDPS", c.magic, n, n)
	k.I("VSUBPS", c.magic, n, n)
	r, low := k.op("VMULPS", c.ln2Hi, n), k.op("VMULPS", c.ln2Lo, n)
	k.I("VSUBPS", r, x, r)
	k.I("VSUBPS", low, r, r)
	p := k.op("VMULPS", c.poly[0], r)
	for _, next := range c.poly[1:] {
		k.I("VADDPS", next, p, p)
		k.I("VMULPS", r, p, p)
	}
	k.I("VMULPS", r, p, p)
	k.I("VADDPS", r, p, p)
	k.I("VADDPS", c.one, p, p)
	const notLess, greater = 5, 30
	normal, over := asmgen.K(2), asmgen.K(3)
	k.I("VCMPPS", asmgen.Imm(notLess), c.least, x, normal)
	k.I("VCMPPS", asmgen.Imm(greater), c.most, x, over)
	k.I("VSCALEFPS.Z", n, p, normal, p)
	k.I("VMOVAPS", c.inf, over, p)
	return p
}

func expSum(f *file) {
	k := f.kernel("expSum", rows("dst"), float32s("a"), rows("x"), float32s("shift"), result("float32"))
	p, a, shift := k.pointers("dst", "x"), k.float32("a"), k.float32("shift")
	c, sums := k.expConstants(), k.zeros(1)
	k.each("dst_len", 16, 1, func(int) {
		x := k.op("VMULPS", k.load(p[1]), a)
		k.I("VSUBPS", shift, x, x)
		e := k.exp(c, x)
		k.store(e, p[0])
		k.merged("VADDPS", e, sums[0], sums[0])
	})
	k.I("VMOVSS", k.fold("VADDPS", sums), k.Slot("ret"))
	k.Return()
}

// denominator returns 1 + exp(-g), one over the sigmoid of g.
func (k *kernel) denominator(c expConstants, sign, g asmgen.Vec) asmgen.Vec {
	return k.op("VADDPS", c.one, k.exp(c, k.op("VPXORD", sign, g)))
}

func swiGLU(f *file) {
	k := f.kernel("swiGLU", rows("h", "gate", "up"))
	p := k.pointers("h", "gate", "up")
	c, sign := k.expConstants(), k.word(1<<31)
	k.each("h_len", 16, 1, func(int) {
		g := k.load(p[1])
		silu := k.op("VDIVPS", k.denominator(c, sign, g), g)
		k.store(k.op("VMULPS", k.load(p[2]), silu), p[0])
	})
	k.Return()
}

func swiGLUBackward(f *file) {
	k := f.kernel("swiGLUBackward", rows("dgate", "dup", "dh", "gate", "up"))
	p := k.pointers("dgate", "dup", "dh", "gate", "up")
	c, sign := k.expConstants(), k.word(1<<31)
	k.each("dh_len", 16, 1, func(int) {
		d, g, u := k.load(p[2]), k.load(p[3]), k.load(p[4])
		s := k.op("VDIVPS", k.denominator(c, sign, g), c.one)
		slope := k.op("VSUBPS", s, c.one)
		k.I("VMULPS", g, slope, slope)
		k.I("VADDPS", c.one, slope, slope)
		dgate := k.op("VMULPS", u, d)
		k.I("VMULPS", s, dgate, dgate)
		k.I("VMULPS", slope, dgate, dgate)
		dup := k.op("VMULPS", g, d)
		k.I("VMULPS", s, dup, dup)
		k.store(dgate, p[0])
		k.store(dup, p[1])
	})
	k.Return()
}
