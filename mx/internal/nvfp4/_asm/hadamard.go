package main

// The 16-point Hadamard transform along columns.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// hadamard prints the transform of 16 rows, 16 columns at a time. The order of operations is that
// of mx.Hadamard.
func hadamard(f *asmgen.File) {
	fn := f.Func("hadamardAVX512", "hadamardAVX512 transforms 16 rows of n vectors in place. The rows are stride bytes apart. Bit i of signs negates row i first.",
		asmgen.Arg("x", "unsafe.Pointer"), asmgen.Arg("stride", "int"), asmgen.Arg("n", "int"), asmgen.Arg("signs", "int"))
	x := fn.Load("x")
	stride := fn.Load("stride")
	n := fn.Load("n")
	signs := fn.Load("signs")
	at := fn.GP()
	negative := constants{f, fn}.broadcast("hadamardSign", 1<<31)
	quarter := constants{f, fn}.broadcast("hadamardQuarter", math.Float32bits(0.25))
	v, t, flip := fn.Zs(16), fn.Z(), fn.Zs(1)
	bit := fn.GP()
	fn.CountDown(n, func() {
		fn.I("MOVQ", x, at)
		for i, r := range v {
			fn.I("MOVQ", signs, bit)
			fn.I("SHRQ", asmgen.Imm(int64(i)), bit)
			fn.I("ANDQ", asmgen.Imm(1), bit)
			fn.I("NEGQ", bit)
			fn.I("VPBROADCASTD", bit, flip[0])
			fn.I("VPANDD", negative, flip[0], flip[0])
			fn.I("VPXORD", at.At(0), flip[0], r)
			fn.I("ADDQ", stride, at)
		}
		for half := 1; half < 16; half *= 2 {
			for i := range 16 {
				if i&half != 0 {
					continue
				}
				a, b := v[i], v[i+half]
				fn.I("VMOVAPS", a, t)
				fn.I("VADDPS", b, a, a)
				fn.I("VSUBPS", b, t, b)
			}
		}
		fn.I("MOVQ", x, at)
		for _, r := range v {
			fn.I("VMULPS", quarter, r, r)
			fn.I("VMOVUPS", r, at.At(0))
			fn.I("ADDQ", stride, at)
		}
		fn.I("ADDQ", asmgen.Imm(64), x)
	})
	fn.Return()
}
