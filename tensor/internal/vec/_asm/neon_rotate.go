package main

// Rotary position embedding of several BF16 rows, on NEON.

import "spmoe/tensor/asmgen"

// rotate works on 4 pairs of neighbors at a time, with their first elements in one register and
// their second elements in another.
func (f *neonFile) rotate() {
	k := f.start("rotate16", vectors(bf16, "x"), ints("stride", "count", "pairs"), vectors(fp32, "cos", "sin"), float32s("sign"))
	x, cos, sin := k.Load("x_base"), k.row("cos", fp32), k.row("sin", fp32)
	sign, stride, count := k.float32("sign"), k.Load("stride"), k.Load("count")
	k.hasFP32 = false
	k.split()
	k.rounding(bf16)
	k.I("LSL", asmgen.Imm(1), stride)
	pairs := k.add(row{base: k.GP(), elem: 2 * bf16})
	head := k.Label("row")
	k.Place(head)
	k.I("MOVD", x, pairs.base)
	k.loop("pairs", 4, 1, func(int) {
		v, c, s := k.widened(k.loadLanes(pairs)), k.loadLanes(cos), k.loadLanes(sin)
		k.lanes("VFMUL", sign, s, s)
		first, second := k.op("VFMUL", c, v[0]), k.op("VFMUL", s, v[0])
		k.lanes("VFMUL", s, v[1], s)
		k.lanes("VFSUB", s, first, first)
		k.lanes("VFMUL", c, v[1], c)
		k.lanes("VFADD", c, second, second)
		k.storeLanes(k.narrow(neonPair{first, second}), pairs)
	})
	k.skipPart(cos, sin)
	k.I("ADD", stride, x)
	k.I("SUBS", asmgen.Imm(1), count)
	k.I("BNE", head)
	k.Return()
}

// skipPart moves the bases of rows past the pairs of the tail.
func (k *neonKernel) skipPart(rows ...row) {
	rest := k.Load("pairs")
	k.I("AND", asmgen.Imm(3), rest)
	k.I("LSL", asmgen.Imm(2), rest)
	for _, r := range rows {
		k.I("ADD", rest, r.base)
	}
	k.Free(rest)
}

// loadLanes reads 4 FP32, or those of a part. A pair of BF16 counts as one.
func (k *neonKernel) loadLanes(r row) asmgen.Neon {
	v := k.temp()
	if k.part {
		k.loadPart(r.after(0), k.partSize(int(fp32)).first, v)
	} else {
		k.I("FMOVQ", r.after(0), v)
	}
	return v
}

// storeLanes writes what loadLanes reads.
func (k *neonKernel) storeLanes(v asmgen.Neon, r row) {
	if k.part {
		k.storePart(v, r.after(0), k.partSize(int(fp32)).first)
	} else {
		k.I("FMOVQ", v, r.after(0))
	}
}
