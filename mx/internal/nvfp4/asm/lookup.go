package main

// From codes to BF16 by tables, for rows that share block scales.

import "spmoe/tensor/asmgen"

// lookUp prints the decoder of 32 codes at a time.
func lookUp(f *asmgen.File) {
	const name = "lookUpAVX512"
	fn := f.Func(name, name+" takes n pairs of blocks.", append(pointers("dst", "codes", "tables"), asmgen.Arg("n", "int"))...)
	dst, codes, tables, n := fn.Load("dst"), fn.Load("codes"), fn.Load("tables"), fn.Load("n")
	mask, second, v, t := constants{f, fn}.broadcast(name+"Mask", 0x000f000f), fn.Z(), fn.Z(), fn.Z()
	fn.I("VMOVDQU64", f.Data32(name+"Offsets", pairOffsets()...), second)
	fn.CountDown(n, func() {
		lookUpPair(fn, codes.At(0), tables.At(0), mask, second, v, t)
		fn.I("VMOVDQU64", v, dst.At(0))
		fn.I("ADDQ", asmgen.Imm(16), codes)
		fn.I("ADDQ", asmgen.Imm(64), dst)
		fn.I("ADDQ", asmgen.Imm(64), tables)
	})
	fn.Return()
}

// pairOffsets returns the offsets into the table of a pair of blocks, of two codes per double word.
func pairOffsets() (offsets []uint32) {
	for i := range uint32(16) {
		offsets = append(offsets, i/8*0x00100010)
	}
	return offsets
}

// lookUpPair decodes the codes of a pair of blocks to v.
func lookUpPair(fn *asmgen.Func, codes, table asmgen.Operand, mask, offsets, v, t asmgen.Vec) {
	fn.I("VPMOVZXBD", codes, v)
	fn.I("VPSLLD", asmgen.Imm(12), v, t)
	fn.I("VPTERNLOGD", asmgen.Imm(0xa8), mask, t, v) // (v | t) & mask
	fn.I("VPORD", offsets, v, v)
	fn.I("VPERMW", table, v, v)
}
