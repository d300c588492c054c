package main

// Rotary position embedding of several BF16 rows, 16 pairs of neighbors at a time.

import "spmoe/tensor/asmgen"

func (f *file) rotate() {
	k := f.start("rotate16", vectors(bf16, "x"), ints("stride", "count", "pairs"), vectors(fp32, "cos", "sin"), float32s("sign"))
	x, cos, sin, sign := k.Load("x_base"), k.row("cos", fp32), k.row("sin", fp32), k.float32("sign")
	stride, count, pairs := k.Load("stride"), k.Load("count"), k.Load("pairs")
	k.I("IMULQ", asmgen.Imm(bf16), stride)
	k.split()
	k.rounding(bf16)
	all := row{base: x, elem: 2 * bf16}
	head := k.Label("row")
	k.Place(head)
	k.loop("pairs", 16, 1, func(int) {
		v, c, s := k.loadPairs(all), k.loadHalf(k.at(cos), fp32, 0), k.loadHalf(k.at(sin), fp32, 0)
		k.I("VMULPS", sign, s, s)
		a, b := k.op("VMULPS", c, v[0]), k.op("VMULPS", s, v[0])
		k.I("VSUBPS", k.op("VMULPS", s, v[1]), a, a)
		k.I("VADDPS", k.op("VMULPS", c, v[1]), b, b)
		k.storePairs(pair{a, b}, all)
	}, false, true)
	k.I("ADDQ", stride, x)
	k.I("LEAQ", cos.base.At(0).Index(pairs, 4), cos.base)
	k.I("LEAQ", sin.base.At(0).Index(pairs, 4), sin.base)
	k.I("DECQ", count)
	k.I("JNZ", head)
	k.Return()
}

// loadPairs returns the first elements of the body's pairs, and their second elements.
func (k *kernel) loadPairs(r row) pair {
	all := k.temp()
	if k.avx2 {
		k.loadWideAVX2(k.at(r), 0, all)
	} else {
		k.zeroed(tail, "VMOVDQU32", k.at(r), all)
	}
	return k.widened(all)
}

func (k *kernel) storePairs(v pair, r row) {
	all := k.narrow(v)
	if k.avx2 {
		k.storeWideAVX2(all, k.at(r), 0)
	} else {
		k.merged(tail, "VMOVDQU32", all, k.at(r))
	}
}
