package main

// RMSNorm with its gradient, and rotary position embedding, on NEON.

import "spmoe/tensor/asmgen"

// split replaces NaNs by the NaN with zeros after the quiet bit.
func (f *neonFile) split() {
	k := f.newKernel("split", rows("dst", "w"))
	k.split()
	dst, w, nan := k.weights("dst", bf16), k.row("w", fp32), k.word(0xffc00000)
	k.each("w_len", 8, 4, func(int) {
		v := k.load(w)
		for h, x := range v {
			isNumber := k.op("VFCMEQ", x, x)
			k.bits("VBIF", isNumber, nan, x)
			k.release(isNumber)
			k.I("FMOVQ", x, dst.base.At(2*k.step+64*h)) // a part ends in zeros
		}
	})
	k.Return()
}

func (f *neonFile) mulScaled() {
	for _, e := range variants {
		k := f.newKernel(kernelName("mulScaled", e), rows("dst"), float32s("a"), rows("x", "y"))
		k.splitIf(e)
		dst, x, y, a := k.row("dst", e), k.row("x", e), k.weights("y", e), k.float32("a")
		k.rounding(e)
		k.each("dst_len", 8, 4, func(int) {
			axy := k.load(x)
			k.scaled(a, axy)
			k.pairwise("VFMUL", k.load(y), axy, axy)
			k.store(axy, dst)
		})
		k.Return()
	}
}

func (f *neonFile) normWeightGrad() {
	for _, e := range variants {
		k := f.newKernel(kernelName("normWeightGrad", e), rows("dw"), float32s("a"), rows("dy", "x", "w"), result("float32"))
		dw, w, dy, x := k.row("dw", fp32), k.row("w", fp32), k.row("dy", e), k.row("x", e)
		a, sums := k.float32("a"), k.zeros(16)
		k.each("dw_len", 8, 8, func(j int) {
			product, second := k.load(dy), k.load(x)
			k.pairwise("VFMUL", second, product, product)
			k.release(second[:]...)
			weighted, sum := k.load(w), neonPair(sums[2*j:])
			k.pairwise("VFMUL", product, weighted, weighted)
			k.pairwise("VFADD", weighted, sum, sum)
			k.release(weighted[:]...)
			k.scaled(a, product)
			grad := k.load(dw)
			k.pairwise("VFADD", product, grad, grad)
			k.store(grad, dw)
		})
		k.returnSum(sums)
	}
}

func (f *neonFile) normInputGrad() {
	for _, e := range variants {
		k := f.newKernel(kernelName("normInputGrad", e), rows("dx"), []asmgen.Param{asmgen.Arg("add", "bool")}, float32s("a"), rows("dy", "w"),
			float32s("b"), rows("x"))
		k.splitIf(e)
		dx, dy, x, w := k.row("dx", e), k.row("dy", e), k.row("x", e), k.weights("w", e)
		k.rounding(e)
		a, b := k.float32("a"), k.float32("b")
		adding := k.GP()
		k.I("MOVBU", k.Slot("add"), adding)
		k.each("dx_len", 8, 4, func(int) {
			grad, bx := k.load(dy), k.load(x)
			k.scaled(a, grad)
			k.pairwise("VFMUL", k.load(w), grad, grad)
			k.scaled(b, bx)
			k.pairwise("VFADD", bx, grad, grad)
			notAdding := k.Label("set")
			k.I("CBZ", adding, notAdding)
			k.pairwise("VFADD", k.load(dx), grad, grad)
			k.Place(notAdding)
			k.store(grad, dx)
		})
		k.Return()
	}
}

// rotate works on 4 pairs of neighbors at a time, with their first elements in one register and
// their second elements in another.
func (f *neonFile) rotate() {
	for _, e := range variants {
		k := f.newKernel(kernelName("rotate", e), rows("x"), ints("stride", "count", "pairs"), rows("cos", "sin"), float32s("sign"))
		x, cos, sin := k.Load("x_base"), k.row("cos", fp32), k.row("sin", fp32)
		sign, stride, count := k.float32("sign"), k.Load("stride"), k.Load("count")
		k.hasFP32 = e == fp32
		k.splitIf(e)
		k.rounding(e)
		k.I("LSL", asmgen.Imm(int(e)/2), stride) // 1 for 2 bytes, 2 for 4
		pairs := k.add(neonRow{base: k.GP(), elem: 2 * e})
		head := k.Label("row")
		k.Place(head)
		k.I("MOVD", x, pairs.base)
		k.each("pairs", 4, 1, func(int) {
			v, c, s := k.loadPairs(pairs, e), k.loadLanes(cos), k.loadLanes(sin)
			k.do("VFMUL", sign, s, s)
			first, second := k.op("VFMUL", c, v[0]), k.op("VFMUL", s, v[0])
			k.do("VFMUL", s, v[1], s)
			k.do("VFSUB", s, first, first)
			k.do("VFMUL", c, v[1], c)
			k.do("VFADD", c, second, second)
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
func (k *neonKernel) skipPart(rows ...neonRow) {
	rest := k.Load("pairs")
	k.I("AND", asmgen.Imm(3), rest)
	k.I("LSL", asmgen.Imm(2), rest)
	for _, r := range rows {
		k.I("ADD", rest, r.base)
	}
	k.Free(rest)
}

// loadLanes reads 4 FP32, or those of a part.
func (k *neonKernel) loadLanes(r neonRow) asmgen.Neon {
	v := k.temp()
	if k.part {
		k.loadPart(r.at(0), k.partSize(int(fp32)).first, v)
	} else {
		k.I("FMOVQ", r.at(0), v)
	}
	return v
}

// loadPairs reads 4 pairs: their first elements, and their second elements.
func (k *neonKernel) loadPairs(r neonRow, e elem) neonPair {
	if e == bf16 {
		return k.widened(k.loadLanes(r))
	}
	v := neonPair{k.temp(), k.temp()}
	if k.part {
		k.loadParts(r.at(0), k.partSize(int(r.elem)), v)
	} else {
		k.I("FLDPQ", r.at(0), asmgen.Pair{v[0], v[1]})
	}
	return neonPair{k.op("VUZP1", v[1], v[0]), k.op("VUZP2", v[1], v[0])}
}

func (k *neonKernel) storePairs(v neonPair, r neonRow, e elem) {
	if e == bf16 {
		if both := k.narrow(v); k.part {
			k.storePart(both, r.at(0), k.partSize(int(fp32)).first)
		} else {
			k.I("FMOVQ", both, r.at(0))
		}
		return
	}
	both := neonPair{k.op("VZIP1", v[1], v[0]), k.op("VZIP2", v[1], v[0])}
	if k.part {
		k.storeParts(both, r.at(0), k.partSize(int(r.elem)))
	} else {
		k.I("FSTPQ", asmgen.Pair{both[0], both[1]}, r.at(0))
	}
}
