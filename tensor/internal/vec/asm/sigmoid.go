package main

// The sigmoid function, and SwiGLU with its gradient.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// denominator returns 1 + exp(-g), which is 1/sigmoid(g). If g is NaN, it returns an arbitrary
// number.
func (k *kernel) denominator(c expConstants, one asmgen.Operand, g asmgen.Vec) asmgen.Vec {
	d := k.copyOf(g)
	k.exp(c, k.clampNumber, d)
	k.I("VADDPS", one, d, d)
	return d
}

func sigmoid(f *file) {
	k := f.newKernel("sigmoid", rows("dst", "x"))
	r := k.rows(fp32, "dst", "x")
	c, one := k.clampConstants(true), k.word(math.Float32bits(1))
	k.each("dst_len", lanes, 1, func(int) {
		x := k.load(r[1])
		k.eachHalf(func(h int) []asmgen.Vec {
			k.exp(c, k.clamp, x[h])
			k.I("VADDPS", one, x[h], x[h])
			k.I("VDIVPS", x[h], one, x[h])
			return nil
		})
		k.store(x, r[0])
	})
	k.Return()
}

func swiGLU(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("swiGLU", e), rows("h", "gate", "up"))
		k.fewRegisters = true
		k.splitIf(e)
		r := k.rows(e, "h", "gate", "up")
		k.rounding(e)
		c, one := k.expConstants(true), k.word(math.Float32bits(1))
		k.eachInterleaved("h_len", lanes, 2, func(int) {
			g := k.load(r[1])
			k.eachHalf(func(h int) []asmgen.Vec {
				k.I("VDIVPS", k.denominator(c, one, g[h]), g[h], g[h])
				return nil
			})
			u := k.load(r[2])
			k.pairwise("VMULPS", u, g, g)
			k.store(g, r[0])
		})
		k.Return()
	}
}

func swiGLUBackward(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("swiGLUBackward", e), rows("dgate", "dup", "dh", "gate", "up"))
		k.splitIf(e)
		r := k.rows(e, "dgate", "dup", "dh", "gate", "up")
		k.rounding(e)
		c, one := k.expConstants(true), k.word(math.Float32bits(1))
		k.each("dh_len", lanes, 1, func(int) {
			d, g, u := k.load(r[2]), k.load(r[3]), k.load(r[4])
			k.eachHalf(func(h int) []asmgen.Vec {
				s := k.op("VDIVPS", k.denominator(c, one, g[h]), one)
				slope := k.op("VSUBPS", s, one)
				k.I("VMULPS", g[h], slope, slope)
				k.I("VADDPS", one, slope, slope)
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
