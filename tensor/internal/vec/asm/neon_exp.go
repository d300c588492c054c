package main

// The exponential function of ../exp.go on NEON, and the kernels that use it.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// neonExp is the operands of exp.
type neonExp struct {
	factors                       asmgen.Neon // log2(e), -ln(2), c3: multipliers
	shifter, c2, most, least      asmgen.Neon
	fraction, lanes, spread, bias asmgen.Neon
	powers                        []asmgen.Neon
}

func (k *neonKernel) exp() neonExp {
	word := func(x float32) asmgen.Neon { return k.word(math.Float32bits(x)) }
	e := neonExp{powers: k.constant(k.file.powers, 4), spread: k.constant(k.file.spread, 1)[0], factors: k.V()}
	for i, x := range []float32{math.Log2E, -math.Ln2, 0.16666979} {
		r := k.GP()
		k.I("MOVD", asmgen.Imm(math.Float32bits(x)), r)
		k.I("VMOV", r, e.factors.S(i))
		k.Free(r)
	}
	e.shifter, e.c2, e.most, e.least = k.word(shifter), word(0.49998379), word(104), word(-104)
	// A power is found at byte 4·i of the table, where i is the lowest four bits of n.
	e.fraction, e.lanes = k.word(15<<2), k.word(0x03020100)
	bias := uint32(2 * 127)
	e.bias = k.word(bias - shifter>>4)
	return e
}

// replace replaces x by e**x. NaN stays NaN, because FMIN and FMAX return it.
func (e neonExp) replace(k *neonKernel, x asmgen.Neon) {
	k.do("VFMIN", e.most, x, x)
	k.do("VFMAX", e.least, x, x)
	n := k.copyOf(e.shifter)
	k.I("VFMLA", e.factors.S(0), x.S4(), n.S4())
	whole := k.op("VFSUB", e.shifter, n)
	k.I("VFMLA", e.factors.S(1), whole.S4(), x.S4())
	p := k.copyOf(e.c2)
	k.I("VFMLA", e.factors.S(2), x.S4(), p.S4())
	square := k.op("VFMUL", x, x)
	k.do("VFMLA", square, p, x)
	power := e.power(k, n)
	k.bits("VMOV", power, p)
	k.do("VFMLA", power, x, p)
	k.release(whole, square, power)
	e.scale(k, n, p, x)
	k.release(n, p)
}

// power looks up 2 to the power of the fraction of n.
func (e neonExp) power(k *neonKernel, n asmgen.Neon) asmgen.Neon {
	at := k.temp()
	k.shift("VSHL", 2, n, at)
	k.bits("VAND", e.fraction, at, at)
	k.I("VTBL", e.spread.B16(), listOf(at), at.B16())
	k.do("VADD", e.lanes, at, at)
	k.I("VTBL", at.B16(), listOf(e.powers...), at.B16())
	return at
}

// scale sets d to x times 2 to the power of the whole part of n, in two factors. It overwrites n.
// With the bias of both exponents added, halving rounds down as Exp does.
func (e neonExp) scale(k *neonKernel, n, x, d asmgen.Neon) {
	half := k.temp()
	k.shift("VUSHR", 4, n, n)
	k.do("VADD", e.bias, n, n)
	k.shift("VUSHR", 1, n, half)
	k.do("VSUB", half, n, n)
	for _, power := range []asmgen.Neon{half, n} {
		k.shift("VSHL", 23, power, power)
	}
	k.do("VFMUL", half, x, d)
	k.do("VFMUL", n, d, d)
	k.release(half)
}

func (f *neonFile) expSum() {
	for _, t := range variants {
		k := f.newKernel(kernelName("expSum", t), rows("dst"), float32s("a"), rows("x"), float32s("shift"), result("float32"))
		e := k.exp()
		dst, src, a, shift := k.row("dst", t), k.row("x", fp32), k.float32("a"), k.float32("shift")
		k.rounding(t)
		sums := k.zeros(4)
		k.each("dst_len", 8, 2, func(j int) {
			x := k.load(src)
			mask := k.partMask()
			k.eachHalf(func(h int) {
				k.do("VFMUL", a, x[h], x[h])
				k.do("VFSUB", shift, x[h], x[h])
				e.replace(k, x[h])
				if k.part {
					k.bits("VAND", mask[h], x[h], x[h])
				}
				sum := sums[2*j+h]
				k.do("VFADD", x[h], sum, sum)
			})
			k.store(x, dst)
		})
		k.returnSum(sums)
	}
}

// partMask returns ones in the elements of a part; nothing for a whole body.
func (k *neonKernel) partMask() (mask neonPair) {
	if k.part {
		r := k.address(k.file.ones)
		mask = neonPair{k.temp(), k.temp()}
		k.loadParts(r.At(0), k.partSize(int(fp32)), mask)
		k.Free(r)
	}
	return mask
}

func (f *neonFile) softmaxBackward() {
	for _, t := range variants {
		k := f.newKernel(kernelName("softmaxBackward", t), rows("p", "ds"), float32s("a"), rows("s", "dp"), float32s("lse", "delta"))
		e := k.exp()
		p, ds, s, dp := k.row("p", t), k.row("ds", t), k.row("s", fp32), k.row("dp", fp32)
		k.rounding(t)
		a, lse, delta := k.float32("a"), k.float32("lse"), k.float32("delta")
		k.each("p_len", 8, 1, func(int) {
			x, d := k.load(s), k.load(dp)
			k.eachHalf(func(h int) {
				k.do("VFMUL", a, x[h], x[h])
				k.do("VFSUB", lse, x[h], x[h])
				e.replace(k, x[h])
				k.do("VFSUB", delta, d[h], d[h])
				k.do("VFMUL", k.op("VFMUL", x[h], a), d[h], d[h])
			})
			k.store(x, p)
			k.store(d, ds)
		})
		k.Return()
	}
}

// denominator replaces g by 1 + exp(-g), which is 1/sigmoid(g).
func (k *neonKernel) denominator(e neonExp, one, g asmgen.Neon) {
	k.do("VFNEG", g, g)
	e.replace(k, g)
	k.do("VFADD", one, g, g)
}

func (f *neonFile) sigmoid() {
	k := f.newKernel("sigmoid", rows("dst", "x"))
	e, r, one := k.exp(), k.rows(fp32, "dst", "x"), k.word(math.Float32bits(1))
	k.each("dst_len", 8, 1, func(int) {
		x := k.load(r[1])
		k.eachHalf(func(h int) {
			k.denominator(e, one, x[h])
			k.do("VFDIV", x[h], one, x[h])
		})
		k.store(x, r[0])
	})
	k.Return()
}

func (f *neonFile) swiGLU() {
	for _, t := range variants {
		k := f.newKernel(kernelName("swiGLU", t), rows("h", "gate", "up"))
		e := k.exp()
		k.splitIf(t)
		r, one := k.rows(t, "h", "gate", "up"), k.word(math.Float32bits(1))
		k.rounding(t)
		k.each("h_len", 8, 1, func(int) {
			g, u := k.load(r[1]), k.load(r[2])
			k.eachHalf(func(h int) {
				d := k.copyOf(g[h])
				k.denominator(e, one, d)
				k.do("VFDIV", d, g[h], g[h])
				k.do("VFMUL", u[h], g[h], g[h])
			})
			k.store(g, r[0])
		})
		k.Return()
	}
}

func (f *neonFile) swiGLUBackward() {
	for _, t := range variants {
		k := f.newKernel(kernelName("swiGLUBackward", t), rows("dgate", "dup", "dh", "gate", "up"))
		e := k.exp()
		k.splitIf(t)
		r, one := k.rows(t, "dgate", "dup", "dh", "gate", "up"), k.word(math.Float32bits(1))
		k.rounding(t)
		k.each("dh_len", 8, 1, func(int) {
			d, g, u := k.load(r[2]), k.load(r[3]), k.load(r[4])
			k.eachHalf(func(h int) {
				s := k.copyOf(g[h])
				k.denominator(e, one, s)
				k.do("VFDIV", s, one, s)
				slope := k.op("VFSUB", s, one)
				k.do("VFMUL", g[h], slope, slope)
				k.do("VFADD", one, slope, slope)
				k.do("VFMUL", d[h], u[h], u[h])
				k.do("VFMUL", s, u[h], u[h])
				k.do("VFMUL", slope, u[h], u[h])
				k.do("VFMUL", d[h], g[h], g[h])
				k.do("VFMUL", s, g[h], g[h])
			})
			k.store(u, r[0])
			k.store(g, r[1])
		})
		k.Return()
	}
}
