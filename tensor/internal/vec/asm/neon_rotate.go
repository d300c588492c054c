package main

// Rotary position embedding of several rows, on NEON.

import "spmoe/tensor/asmgen"

// rotate works on 4 pairs of neighbors at a time, with their first elements in one register and
// their second elements in another.
func (f *neonFile) rotate() {
	for _, e := range variants {
		k := f.start(kernelName("rotate", e), vectors(e, "x"), ints("stride", "count", "pairs"), vectors(fp32, "cos", "sin"), float32s("sign"))
		x, cos, sin := k.Load("x_base"), k.row("cos", fp32), k.row("sin", fp32)
		sign, stride, count := k.float32("sign"), k.Load("stride"), k.Load("count")
		k.hasFP32 = e == fp32
		splitIf(machine[asmgen.Neon](k), e)
		k.rounding(e)
		k.I("LSL", asmgen.Imm(int(e)/2), stride) // 1 for 2 bytes, 2 for 4
		pairs := k.add(row{base: k.GP(), elem: 2 * e})
		head := k.Label("row")
		k.Place(head)
		k.I("MOVD", x, pairs.base)
		k.loop("pairs", 4, 1, func(int) {
			v, c, s := k.loadPairs(pairs, e), k.loadLanes(cos), k.loadLanes(sin)
			k.lanes("VFMUL", sign, s, s)
			first, second := k.op("VFMUL", c, v[0]), k.op("VFMUL", s, v[0])
			k.lanes("VFMUL", s, v[1], s)
			k.lanes("VFSUB", s, first, first)
			k.lanes("VFMUL", c, v[1], c)
			k.lanes("VFADD", c, second, second)
			k.storePairs(neonPair{first, second}, pairs, e)
		})
		k.skipPart(cos, sin)
		k.I("ADD", stride, x)
		k.I("SUBS", asmgen.Imm(1), count)
		k.I("BNE", head)
		k.Return()
	}
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

// loadLanes reads 4 FP32, or those of a part.
func (k *neonKernel) loadLanes(r row) asmgen.Neon {
	v := k.temp()
	if k.part {
		k.loadPart(r.after(0), k.partSize(int(fp32)).first, v)
	} else {
		k.I("FMOVQ", r.after(0), v)
	}
	return v
}

// loadPairs reads 4 pairs: their first elements, and their second elements.
func (k *neonKernel) loadPairs(r row, e elem) neonPair {
	if e == bf16 {
		return k.widened(k.loadLanes(r))
	}
	v := neonPair{k.temp(), k.temp()}
	if k.part {
		k.loadParts(r.after(0), k.partSize(int(r.elem)), v)
	} else {
		k.I("FLDPQ", r.after(0), asmgen.Pair{v[0], v[1]})
	}
	return neonPair{k.op("VUZP1", v[1], v[0]), k.op("VUZP2", v[1], v[0])}
}

func (k *neonKernel) storePairs(v neonPair, r row, e elem) {
	if e == bf16 {
		if both := k.narrow(v); k.part {
			k.storePart(both, r.after(0), k.partSize(int(fp32)).first)
		} else {
			k.I("FMOVQ", both, r.after(0))
		}
		return
	}
	both := neonPair{k.op("VZIP1", v[1], v[0]), k.op("VZIP2", v[1], v[0])}
	if k.part {
		k.storeParts(both, r.after(0), k.partSize(int(r.elem)))
	} else {
		k.I("FSTPQ", asmgen.Pair{both[0], both[1]}, r.after(0))
	}
}
