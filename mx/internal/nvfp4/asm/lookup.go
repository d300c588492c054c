package main

// From codes to BF16 by tables, for rows that share block scales.

import "spmoe/tensor/asmgen"

// lookUp prints the decoder of 32 codes at a time.
func lookUp(f *asmgen.File) {
	const name = "lookUpAVX512"
	fn := f.Func(name, name+" takes n pairs of blocks.", append(pointers("dst", "codes", "tables"), asmgen.Arg("n", "int"))...)
	dst, codes, tables, n := fn.Load("dst"), fn.Load("codes"), fn.Load("tables"), fn.Load("n")
	mask, second, v, t := constants{f, fn}.broadcast(name+"Mask", 0x000f000f), fn.Z(), fn.Z(), fn.Z()
	var offsets []uint32 // into the table of the pair, of two codes each
	for i := range uint32(16) {
		offsets = append(offsets, i/8*0x00100010)
	}
	fn.I("VMOVDQU64", f.Data32(name+"Offsets", offsets...), second)
	fn.CountDown(n, func() {
		fn.I("VPMOVZXBD", codes.At(0), v)
		fn.I("VPSLLD", asmgen.Imm(12), v, t)
		fn.I("VPTERNLOGD", asmgen.Imm(0xa8), mask, t, v) // (v | t) & mask
		fn.I("VPORD", second, v, v)
		fn.I("VPERMW", tables.At(0), v, v)
		fn.I("VMOVDQU64", v, dst.At(0))
		fn.I("ADDQ", asmgen.Imm(16), codes)
		fn.I("ADDQ", asmgen.Imm(64), dst)
		fn.I("ADDQ", asmgen.Imm(64), tables)
	})
	fn.Return()
}
