package main

// Codes: from FP32 to packed E2M1, and from these to BF16.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// encode prints the encoder of 16 FP32 at a time. The nearest code is found as in
// format.Element.EncodeScaled, and a random one as in EncodeStochastic.
func encode(f *asmgen.File, along direction, stochastic bool) {
	name := "encode" + string(along) + "AVX512"
	args := pointers("codes", "x", "factors")
	if stochastic {
		name = "encodeStochastic" + string(along) + "AVX512"
		args = append(args, asmgen.Arg("draws", "unsafe.Pointer"))
	}
	fn := f.Func(name, name+" takes n blocks.", append(args, asmgen.Arg("n", "int"))...)
	e := encoder{Func: fn, stochastic: stochastic}
	codes := fn.Load("codes")
	x := fn.Load("x")
	factors := fn.Load("factors")
	n := fn.Load("n")
	if stochastic {
		e.draws = fn.Load("draws")
	}
	c := constants{f, fn}
	e.magnitude = c.broadcast(name+"Magnitude", magnitude)
	e.largest = c.broadcast(name+"Largest", math.Float32bits(6))
	e.exponent = c.broadcast(name+"Exponent", exponent)
	e.smallest = c.broadcast(name+"Smallest", 127*one)
	e.sign = c.broadcast(name+"Sign", 8)
	if stochastic {
		e.perStep = c.broadcast(name+"PerStep", (254+16+1)*one%(1<<32))
	} else {
		e.step = c.broadcast(name+"Step", 22*one)
	}
	v, t := fn.Z(), fn.Z()
	fn.CountDown(n, func() {
		if along == rows {
			fn.I("VBROADCASTSS", factors.At(0), v)
		} else {
			fn.I("VMOVUPS", factors.At(0), v)
		}
		fn.I("VMULPS", x.At(0), v, v)
		code := e.code(v)
		fn.I("VPSRLQ", asmgen.Imm(28), code, t)
		fn.I("VPORQ", t, code, code)
		fn.I("VPMOVQB", code, codes.At(0))
		fn.Free(code)
		fn.I("ADDQ", asmgen.Imm(8), codes)
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(map[direction]int64{rows: 4, cols: 64}[along]), factors)
		if stochastic {
			fn.I("ADDQ", asmgen.Imm(32), e.draws)
		}
	})
	fn.Return()
}

type encoder struct {
	*asmgen.Func
	stochastic bool
	draws      asmgen.Reg

	magnitude, largest, exponent, smallest, sign, step, perStep asmgen.Vec
}

// code returns the codes of v in double words.
func (e encoder) code(v asmgen.Vec) asmgen.Vec {
	m, own, t := e.Z(), e.Z(), e.Z()
	e.I("VPANDD", e.magnitude, v, m)
	e.I("VPMINUD", e.largest, m, m)
	e.I("VPANDD", e.exponent, m, own)
	e.I("VPMAXUD", e.smallest, own, own)
	if e.stochastic {
		e.I("VPSUBD", own, e.perStep, t)
		e.I("VMULPS", t, m, m)
		e.I("VCVTTPS2DQ", m, m)
		e.I("VPMOVZXWD", e.draws.At(0), t)
		e.I("VPADDD", t, m, m)
		e.I("VPSRLD", asmgen.Imm(16), m, m)
	} else {
		e.I("VPADDD", e.step, own, t)
		e.I("VADDPS", t, m, m)
		e.I("VPSUBD", t, m, m)
	}
	e.I("VPSUBD", e.smallest, own, own)
	e.I("VPSRLD", asmgen.Imm(22), own, own)
	e.I("VPADDD", own, m, m)
	e.I("VPSRLD", asmgen.Imm(28), v, t)
	e.I("VPTERNLOGD", asmgen.Imm(0xf8), e.sign, t, m) // m | t & sign
	e.Free(own, t)
	return m
}

// decode prints the decoder of 16 codes at a time to BF16.
func decode(f *asmgen.File, along direction) {
	name := "decode" + string(along) + "AVX512"
	fn := f.Func(name, name+" takes n blocks.", append(pointers("dst", "codes", "scales"), asmgen.Arg("n", "int"))...)
	dst := fn.Load("dst")
	codes := fn.Load("codes")
	scales := fn.Load("scales")
	n := fn.Load("n")
	var numbers []uint32
	for code := range 16 {
		sign := uint32(code) >> 3 << 31
		numbers = append(numbers, sign|math.Float32bits([]float32{0, .5, 1, 1.5, 2, 3, 4, 6}[code%8]))
	}
	table, v, t := fn.Z(), fn.Z(), fn.Z()
	fn.I("VMOVDQU64", f.Data32(name+"Numbers", numbers...), table)
	fn.CountDown(n, func() {
		fn.I("VPMOVZXBQ", codes.At(0), v)
		fn.I("VPSLLQ", asmgen.Imm(28), v, t)
		fn.I("VPORQ", t, v, v)
		fn.I("VPERMPS", table, v, v)
		if along == rows {
			fn.I("VBROADCASTSS", scales.At(0), t)
			fn.I("VMULPS", t, v, v)
		} else {
			fn.I("VMULPS", scales.At(0), v, v)
		}
		fn.I("VPSRLD", asmgen.Imm(16), v, v)
		fn.I("VPMOVDW", v, dst.At(0))
		fn.I("ADDQ", asmgen.Imm(8), codes)
		fn.I("ADDQ", asmgen.Imm(32), dst)
		fn.I("ADDQ", asmgen.Imm(map[direction]int64{rows: 4, cols: 64}[along]), scales)
	})
	fn.Return()
}
