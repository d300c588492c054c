package main

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// split prints splitGeneric for whole vectors, for FP32 and BF16. Leasts are at least FP32's
// smallest exponent, so that its subnormal numbers need no other.
func (m *machine) split() {
	for _, size := range []int{4, 2} {
		k := m.begin(fmt.Sprintf("split%d", 8*size), fmt.Sprintf("split%d%s is splitGeneric for n (> 0) vectors of %d bits per number. Leasts are at least b-127.", 8*size, m.name, 8*size),
			asmgen.Arg("values", "*float32"), asmgen.Arg("exponents", "*uint32"), asmgen.Arg("leasts", "*int32"), asmgen.Arg("from", "unsafe.Pointer"),
			asmgen.Arg("b", "int32"), asmgen.Arg("n", "int"))
		values, exponents, leasts, from, n := k.Load("values"), k.Load("exponents"), k.Load("leasts"), k.Load("from"), k.Load("n")
		bias, x, e, mask := k.vec(), k.vec(), k.vec(), k.vec()
		k.I("VBROADCASTSS", k.Slot("b"), bias)
		k.CountDown(n, func() {
			if size == 4 {
				k.I("VMOVUPS", from.At(0), x)
			} else {
				k.I("VPMOVZXWD", from.At(0), x)
				k.I("VPSLLD", asmgen.Imm(16), x, x)
			}
			k.I("VMOVUPS", x, values.At(0))
			k.I("VPADDD", x, x, x) // without its sign
			k.I("VPSRLD", asmgen.Imm(1), x, x)
			k.I("VPSRLD", asmgen.Imm(23), x, e)
			k.I("VPADDD", bias, e, e)
			k.with("VPADDD", k.word("minusBias", -127), e, e)
			k.I("VPMAXSD", leasts.At(0), e, e)
			k.with("VPADDD", k.word("minusOne", -1), x, mask)
			k.offset(mask, e, "zeroOffset", -6144)
			k.with("VPADDD", k.word("normal", 1<<23), x, mask)
			k.offset(mask, e, "specialOffset", 12288)
			k.I("VPSLLD", asmgen.Imm(16), e, mask)
			k.with("VANDPS", k.word("low", 0xffff), e, e)
			k.I("VORPS", e, mask, e)
			k.I("VMOVUPS", e, exponents.At(0))
			for _, p := range []asmgen.Reg{values, exponents, leasts} {
				k.I("ADDQ", asmgen.Imm(int64(m.bytes)), p)
			}
			k.I("ADDQ", asmgen.Imm(int64(m.bytes*size/4)), from)
		})
		k.Return()
	}
}

// offset adds a constant of the package where x has its sign bit set. It changes x.
func (k *kernel) offset(x, e asmgen.Vec, constant string, value int) {
	k.m.Constant(constant, value)
	k.I("VPSRAD", asmgen.Imm(31), x, x)
	k.with("VANDPS", k.word(constant, value), x, x)
	k.I("VPADDD", x, e, e)
}
