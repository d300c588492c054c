package main

// Conversions between bfloat16 and float32. Rounding is done on integers: VCVTNEPS2BF16 would flush subnormals.

import "spmoe/tensor/asmgen"

func widen(f *file) {
	k := f.kernel("widen", rows("dst", "src"))
	p := k.pointers("dst", "src")
	k.each("dst_len", 16, 1, func(int) {
		v := k.temp()
		k.zeroed("VPMOVZXWD", k.at(p[1], 2), v)
		k.I("VPSLLD", asmgen.Imm(16), v, v)
		k.store(v, p[0])
	})
	k.Return()
}

func round(f *file) {
	k := f.kernel("round", rows("dst", "src"))
	p := k.pointers("dst", "src")
	lowest, half, quiet := k.word(1), k.word(0x7fff), k.word(0x40)
	nan := asmgen.K(2)
	k.each("dst_len", 16, 1, func(int) {
		x := k.load(p[1])
		truncated := k.op("VPSRLD", asmgen.Imm(16), x)
		odd := k.op("VPANDD", lowest, truncated)
		sum := k.op("VPADDD", half, x)
		k.I("VPADDD", odd, sum, sum)
		k.I("VPSRLD", asmgen.Imm(16), sum, sum)
		const unordered = 3
		k.I("VCMPPS", asmgen.Imm(unordered), x, x, nan)
		k.I("VPORD", quiet, truncated, nan, sum)
		k.I("VPMOVDW", sum, sum.Y())
		k.merged("VMOVDQU16", sum.Y(), k.at(p[0], 2))
	})
	k.Return()
}
