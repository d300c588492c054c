package main

// Rotary position embedding of several rows, 16 pairs of neighbors at a time.

import "spmoe/tensor/asmgen"

func (f *file) rotate() {
	for _, e := range variants {
		k := f.start(kernelName("rotate", e), vectors(e, "x"), ints("stride", "count", "pairs"), vectors(fp32, "cos", "sin"), float32s("sign"))
		x, cos, sin, sign := k.Load("x_base"), k.row("cos", fp32), k.row("sin", fp32), k.float32("sign")
		stride, count, pairs := k.Load("stride"), k.Load("count"), k.Load("pairs")
		k.I("IMULQ", asmgen.Imm(e), stride)
		r := k.newPairAccess(x, e)
		head := k.Label("row")
		k.Place(head)
		k.loop("pairs", 16, 1, func(int) {
			v, c, s := r.load(), k.loadHalf(k.at(cos), fp32, 0), k.loadHalf(k.at(sin), fp32, 0)
			k.I("VMULPS", sign, s, s)
			a, b := k.op("VMULPS", c, v[0]), k.op("VMULPS", s, v[0])
			k.I("VSUBPS", k.op("VMULPS", s, v[1]), a, a)
			k.I("VADDPS", k.op("VMULPS", c, v[1]), b, b)
			r.store(pair{a, b})
		}, false, true)
		k.I("ADDQ", stride, x)
		k.I("LEAQ", cos.base.At(0).Index(pairs, 4), cos.base)
		k.I("LEAQ", sin.base.At(0).Index(pairs, 4), sin.base)
		k.I("DECQ", count)
		k.I("JNZ", head)
		k.Return()
	}
}

// pairAccess loads and stores pairs, with their first elements in one register and their second
// elements in another.
type pairAccess struct {
	*kernel
	x    asmgen.Reg
	elem elem
	// Indices that put the elements of FP32 pairs together again in two registers.
	low, high asmgen.Vec
}

func (k *kernel) newPairAccess(x asmgen.Reg, e elem) pairAccess {
	t := pairAccess{kernel: k, x: x, elem: e}
	if e == bf16 {
		k.split()
		k.rounding(e)
		return t
	}
	if k.avx2 {
		return t
	}
	k.even, k.odd = k.indices(k.file.even), k.indices(k.file.odd)
	t.low, t.high = k.indices(k.file.low), k.indices(k.file.high)
	return t
}

// address returns the memory of the body's pairs, of two elements each.
func (t pairAccess) address() asmgen.Mem { return t.at(row{base: t.x, elem: 2 * t.elem}) }

// load returns the first elements of the body's pairs, and their second elements.
func (t pairAccess) load() pair {
	if t.elem == bf16 {
		all := t.temp()
		if t.avx2 {
			t.loadWideAVX2(t.address(), 0, all)
		} else {
			t.zeroed(tail, "VMOVDQU32", t.address(), all)
		}
		return t.widened(all)
	}
	v := pair{t.temp(), t.temp()}
	for h := range 2 {
		m := t.address().Plus(4 * t.width() * h)
		if t.avx2 {
			t.loadPairsAVX2(m, h, v[h])
		} else {
			t.zeroed(halves[h], "VMOVUPD", m, v[h])
		}
	}
	return t.toSplitOrder(v)
}

func (t pairAccess) store(v pair) {
	if t.elem == bf16 {
		all := t.narrow(v)
		if t.avx2 {
			t.storeWideAVX2(all, t.address(), 0)
		} else {
			t.merged(tail, "VMOVDQU32", all, t.address())
		}
		return
	}
	if t.avx2 {
		t.storePairsAVX2(t.toNaturalOrderAVX2(v), t.address())
		return
	}
	v = t.permute(v, t.low, t.high)
	for h := range 2 {
		t.merged(halves[h], "VMOVUPD", v[h], t.address().Plus(64*h))
	}
}
