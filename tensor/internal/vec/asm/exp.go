package main

// The exponential function as in ../exp.go, and softmax.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// expConstants are the registers that exp works with. For e**-x those that meet odd powers of x have the other sign.
type expConstants struct {
	negated                               bool
	log2E, ln2Hi, ln2Lo, one, least, most asmgen.Vec
	poly                                  [7]asmgen.Vec // by power, from 2 on
}

func (k *kernel) expConstants(negated bool) expConstants {
	word := func(x float32) asmgen.Vec { return k.word(math.Float32bits(x)) }
	sign := float32(1)
	if negated {
		sign = -1
	}
	hi := float32(math.Ln2)
	c := expConstants{
		negated: negated, log2E: word(sign * math.Log2E), ln2Hi: word(hi), ln2Lo: word(float32(math.Ln2 - float64(hi))),
		one: word(1), least: word(-104), most: word(104),
	}
	for i, x := range []float32{4.9999994e-1, 1.6666521e-1 * sign, 4.166839e-2, 8.368717e-3 * sign, 1.3814599e-3} {
		c.poly[2+i] = word(x)
	}
	return c
}

// clamp brings x to ±104 but keeps NaN: where x is NaN, VMINPS and VMAXPS give their last source.
func (k *kernel) clamp(c expConstants, x asmgen.Vec) {
	k.I("VMINPS", x, c.most, x)
	k.I("VMAXPS", x, c.least, x)
}

// clampNumber is clamp for the case that NaN does not matter.
func (k *kernel) clampNumber(c expConstants, x asmgen.Vec) {
	const smallerMagnitude = 2
	k.I("VRANGEPS", asmgen.Imm(smallerMagnitude), c.most, x, x)
}

// exp turns x, at most 104 in magnitude, into e**x or e**-x, in 12 instructions. VSCALEFPS adds n to the exponent with one
// rounding, where Exp multiplies by two powers of two: the first product is exact, so both round once.
func (k *kernel) exp(c expConstants, x asmgen.Vec) {
	reduce, last := "VFNMADD231PS", "VFMADD231PS"
	if c.negated {
		reduce, last = "VFMADD231PS", "VFMSUB231PS"
	}
	n := k.op("VMULPS", c.log2E, x)
	const nearest = 8
	k.I("VRNDSCALEPS", asmgen.Imm(nearest), n, n)
	k.I(reduce, c.ln2Hi, n, x)
	k.I(reduce, c.ln2Lo, n, x)
	square := k.op("VMULPS", x, x)
	p, low := k.copyOf(c.poly[5]), k.copyOf(c.poly[3])
	k.I("VFMADD213PS", c.poly[4], x, p)
	k.I("VFMADD213PS", c.poly[2], x, low)
	k.I("VFMADD231PS", c.poly[6], square, p)
	k.I("VFMADD213PS", low, square, p)
	k.I(last, p, square, x)
	k.I("VADDPS", c.one, x, x)
	k.I("VSCALEFPS", n, x, x)
	k.release(n, square, p, low)
}

func expSum(f *file) {
	for _, e := range forms {
		k := f.kernel(named("expSum", e), rows("dst"), float32s("a"), rows("x"), float32s("shift"), result("float32"))
		dst, src, a, shift := k.row("dst", e), k.row("x", fp32), k.float32("a"), k.float32("shift")
		k.rounding(e)
		c, sums := k.expConstants(false), k.zeros(1)
		next := k.following(src, "x_len")
		k.each("dst_len", lanes, 1, func(int) {
			k.prefetch(next)
			x := k.load(src)
			k.both(func(h int) []asmgen.Vec {
				k.I("VMULPS", a, x[h], x[h])
				k.I("VSUBPS", shift, x[h], x[h])
				k.clamp(c, x[h])
				k.exp(c, x[h])
				k.merged(halves[h], "VADDPS", x[h], sums[0], sums[0])
				return nil
			})
			k.store(x, dst)
		})
		k.I("VMOVSS", k.fold("VADDPS", sums), k.Slot("ret"))
		k.Return()
	}
}

func softmaxBackward(f *file) {
	for _, e := range forms {
		k := f.kernel(named("softmaxBackward", e), rows("p", "ds"), float32s("a"), rows("s", "dp"), float32s("lse", "delta"))
		p, ds, s, dp := k.row("p", e), k.row("ds", e), k.row("s", fp32), k.row("dp", fp32)
		k.rounding(e)
		a, lse, delta := k.float32("a"), k.float32("lse"), k.float32("delta")
		c := k.expConstants(false)
		k.each("p_len", lanes, 1, func(int) {
			x, d := k.load(s), k.load(dp)
			k.both(func(h int) []asmgen.Vec {
				k.I("VMULPS", a, x[h], x[h])
				k.I("VSUBPS", lse, x[h], x[h])
				k.clamp(c, x[h])
				k.exp(c, x[h])
				k.I("VSUBPS", delta, d[h], d[h])
				k.I("VMULPS", k.op("VMULPS", x[h], a), d[h], d[h])
				return nil
			})
			k.store(x, p)
			k.store(d, ds)
		})
		k.Return()
	}
}
