package main

// The exponential function of ../exp.go.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// shifter rounds to sixteenths when it is added.
const shifter = 0x49400000

// expConstants are the operands of exp.
type expConstants struct {
	log2E, shifter, ln2, c2, c3, powers asmgen.Operand
	least, most                         asmgen.Operand // limits of clamp
	negated                             bool           // compute e**-x instead of e**x
}

func (k *kernel) expConstants(negated bool) expConstants {
	word := func(x float32) asmgen.Operand { return k.word(math.Float32bits(x)) }
	log2E := float32(math.Log2E)
	if negated {
		log2E = -log2E
	}
	c := expConstants{
		log2E: word(log2E), shifter: k.word(shifter), ln2: word(math.Ln2), c2: word(0.49998379), c3: word(0.16666979),
		most: word(104), negated: negated,
	}
	if !k.avx2 {
		c.powers = k.indices(k.file.powers)
	}
	return c
}

func (k *kernel) exponential(negated, nan bool) func(x asmgen.Vec) {
	c, clamp := k.expConstants(negated), k.clampNumber
	if nan {
		c.least, clamp = k.word(math.Float32bits(-104)), k.clamp
	}
	return func(x asmgen.Vec) { k.exp(c, clamp, x) }
}

// clamp limits x to ±104 and preserves NaN: if x is NaN, VMINPS and VMAXPS return their last
// source.
func (k *kernel) clamp(c expConstants, x asmgen.Vec) {
	k.I("VMINPS", x, c.most, x)
	k.I("VMAXPS", x, c.least, x)
}

// clampNumber is clamp for callers to which NaN does not matter.
func (k *kernel) clampNumber(c expConstants, x asmgen.Vec) {
	if k.avx2 {
		k.I("VMINPS", c.most, x, x)
		k.I("VMAXPS", k.word(math.Float32bits(-104)), x, x)
		return
	}
	const smallerMagnitude = 2
	k.I("VRANGEPS", asmgen.Imm(smallerMagnitude), c.most, x, x)
}

// exp replaces x by e**x or e**-x, after clamp. AVX2 skips clamp if all magnitudes are so small
// that the results are normal numbers. Adding to the exponent is enough then.
func (k *kernel) exp(c expConstants, clamp func(expConstants, asmgen.Vec), x asmgen.Vec) {
	if !k.avx2 {
		clamp(c, x)
		k.expClamped(c, x, k.scaleAVX512)
		return
	}
	const notAtMost, most, magnitude = 6, 86, 1<<31 - 1
	small, done, any := k.Label("small"), k.Label("done"), k.GP()
	large := k.op("VANDPS", k.word(magnitude), x)
	k.I("VCMPPS", asmgen.Imm(notAtMost), k.word(math.Float32bits(most)), large, large)
	k.I("VMOVMSKPS", large, any)
	k.release(large)
	k.I("TESTL", any, any)
	k.Free(any)
	k.I("JEQ", small)
	clamp(c, x)
	k.expClamped(c, x, k.scaleAVX2)
	k.I("JMP", done)
	k.Place(small)
	k.expClamped(c, x, k.scaleNormalAVX2)
	k.Place(done)
}

// expClamped replaces x by e**x or e**-x in 10 instructions. x is at most 104 in magnitude. scale
// multiplies by two to the power of the whole part of n, which includes shifter. Like Exp, scale
// rounds once, because its first product is exact.
func (k *kernel) expClamped(c expConstants, x asmgen.Vec, scale func(n, x asmgen.Vec)) {
	reduce := "VFNMADD231PS"
	if c.negated {
		reduce = "VFNMSUB231PS"
	}
	n := k.copyOf(c.shifter)
	k.I("VFMADD231PS", c.log2E, x, n)
	var power, whole asmgen.Vec
	if k.avx2 {
		power, whole = k.powerAVX2(n), k.copyOf(n)
	} else {
		power, whole = k.op("VPERMPS", c.powers, n), n
	}
	k.I("VSUBPS", c.shifter, n, n)
	k.I(reduce, c.ln2, n, x)
	p := k.copyOf(c.c3)
	k.I("VFMADD213PS", c.c2, x, p)
	square := k.op("VMULPS", x, x)
	k.I("VFMADD231PS", p, square, x)
	k.I("VFMADD213PS", power, power, x)
	k.release(square, p, power)
	scale(whole, x)
	k.release(n)
	if k.avx2 {
		k.release(whole)
	}
}

// scaleAVX512 takes n without shifter, because VSCALEFPS drops the fraction of n.
func (k *kernel) scaleAVX512(n, x asmgen.Vec) { k.I("VSCALEFPS", n, x, x) }
