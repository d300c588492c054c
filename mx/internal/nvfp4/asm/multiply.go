package main

// Products of 8 rows of BF16 with rows of codes, which are decoded by tables in registers.

import "spmoe/tensor/asmgen"

// multiplied is the number of rows of codes that multiply takes at once.
const multiplied = 2

// fetchAhead is the number of bytes from codes to those that are prefetched, in memory order: rows
// are so short that the processor does not follow them in time.
const fetchAhead = 16 << 10

// multiply prints the kernel. Each sum has 16 chains, which are added up as those of a product with
// few rows in package gemm: (0+2)+(1+3) of every four, and then (0+1)+(2+3) of these sums.
func multiply(f *asmgen.File) {
	const name, rowsOfA = "multiplyAVX512", 8
	fn := f.Func(name, name+" sets sums, [8, 2], to the products of 8 rows of a, in vectors of 32 elements of each, with two rows of codes. They take n steps.",
		append(pointers("sums", "a", "codes"), asmgen.Arg("stride", "int"), asmgen.Arg("tables", "unsafe.Pointer"), asmgen.Arg("n", "int"))...)
	out, a, codes, stride, tables, n := fn.Load("sums"), fn.Load("a"), fn.Load("codes"), fn.Load("stride"), fn.Load("tables"), fn.Load("n")
	mask, second := constants{f, fn}.broadcast(name+"Mask", 0x000f000f), fn.Z()
	fn.I("VMOVDQU64", f.Data32(name+"Offsets", pairOffsets()...), second)
	sums := fn.Zs(rowsOfA * multiplied)
	for _, s := range sums {
		fn.I("VXORPS", s.Y(), s.Y(), s.Y())
	}
	bs, x, t, fetched := fn.Zs(multiplied), fn.Z(), fn.Z(), fn.GP()
	fn.I("LEAQ", codes.At(fetchAhead), fetched)
	fn.CountDown(n, func() {
		fn.I("PREFETCHT0", fetched.At(0))
		fn.I("ADDQ", asmgen.Imm(16*multiplied), fetched)
		for j, b := range bs {
			at := codes.At(0)
			if j == 1 {
				at = at.Index(stride, 1)
			}
			lookUpPair(fn, at, tables.At(0), mask, second, b, t)
		}
		for r := range rowsOfA {
			fn.I("VMOVUPS", a.At(64*r), x)
			for j, b := range bs {
				fn.I("VDPBF16PS", b, x, sums[r*multiplied+j])
			}
		}
		fn.I("ADDQ", asmgen.Imm(64*rowsOfA), a)
		fn.I("ADDQ", asmgen.Imm(16), codes)
		fn.I("ADDQ", asmgen.Imm(64), tables)
	})
	for i, s := range sums {
		fn.I("VPERMILPS", asmgen.Imm(0x4e), s, t)
		fn.I("VADDPS", t, s, s)
		fn.I("VPERMILPS", asmgen.Imm(0xb1), s, t)
		fn.I("VADDPS", t, s, s)
		fn.I("VSHUFF32X4", asmgen.Imm(0xb1), s, s, t)
		fn.I("VADDPS", t, s, s)
		fn.I("VSHUFF32X4", asmgen.Imm(0x4e), s, s, t)
		fn.I("VADDPS", t, s, s)
		fn.I("VMOVSS", s.X(), out.At(4*i))
	}
	fn.Return()
}
