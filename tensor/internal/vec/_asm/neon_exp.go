package main

// The exponential function of ../exp.go on NEON.

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

func (k *neonKernel) exponential(negated, _ bool) func(x asmgen.Neon) {
	e := k.exp()
	return func(x asmgen.Neon) {
		if negated {
			k.lanes("VFNEG", x, x)
		}
		e.replace(k, x)
	}
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
	k.lanes("VFMIN", e.most, x, x)
	k.lanes("VFMAX", e.least, x, x)
	n := k.copyOf(e.shifter)
	k.I("VFMLA", e.factors.S(0), x.S4(), n.S4())
	whole := k.op("VFSUB", e.shifter, n)
	k.I("VFMLA", e.factors.S(1), whole.S4(), x.S4())
	p := k.copyOf(e.c2)
	k.I("VFMLA", e.factors.S(2), x.S4(), p.S4())
	square := k.op("VFMUL", x, x)
	k.lanes("VFMLA", square, p, x)
	power := e.power(k, n)
	k.bits("VMOV", power, p)
	k.lanes("VFMLA", power, x, p)
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
	k.lanes("VADD", e.lanes, at, at)
	k.I("VTBL", at.B16(), listOf(e.powers...), at.B16())
	return at
}

// scale sets d to x times 2 to the power of the whole part of n, in two factors. It overwrites n.
// With the bias of both exponents added, halving rounds down as Exp does.
func (e neonExp) scale(k *neonKernel, n, x, d asmgen.Neon) {
	half := k.temp()
	k.shift("VUSHR", 4, n, n)
	k.lanes("VADD", e.bias, n, n)
	k.shift("VUSHR", 1, n, half)
	k.lanes("VSUB", half, n, n)
	for _, power := range []asmgen.Neon{half, n} {
		k.shift("VSHL", 23, power, power)
	}
	k.lanes("VFMUL", half, x, d)
	k.lanes("VFMUL", n, d, d)
	k.release(half)
}
