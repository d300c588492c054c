package main

// Random numbers: Philox4x32-10 of 16 counters at a time.

import "spmoe/tensor/asmgen"

// draw prints the generator. Lane 4l+k has counter 4k+l, so that interleaving the four words puts
// the blocks of the counters in order.
func draw(f *asmgen.File) {
	fn := f.Func("drawAVX512", "drawAVX512 writes the blocks of n·16 counters, each one greater than the previous. key has two words, counter four.",
		append(pointers("out", "key", "counter"), asmgen.Arg("n", "int"))...)
	out := fn.Load("out")
	key := fn.Load("key")
	counter := fn.Load("counter")
	n := fn.Load("n")
	c := constants{f, fn}
	var order []uint32
	for lane := range uint32(16) {
		order = append(order, lane%4*4+lane/4)
	}
	start := fn.Zs(4)
	sixteen := c.broadcast("drawSixteen", 16)
	high := asmgen.K(1)
	for i, v := range start {
		fn.I("VPBROADCASTD", counter.At(4*i), v)
	}
	fn.I("VPADDD", f.Data32("drawOrder", order...), start[0], start[0])
	mask := fn.GP()
	fn.I("MOVQ", asmgen.Imm(0xaaaa), mask)
	fn.I("KMOVW", mask, high)
	multiplier := []asmgen.Vec{c.broadcast("drawMultiplier0", 0xd2511f53), c.broadcast("drawMultiplier1", 0xcd9e8d57)}
	increase := []asmgen.Vec{c.broadcast("drawIncrease0", 0x9e3779b9), c.broadcast("drawIncrease1", 0xbb67ae85)}
	w, k := fn.Zs(4), fn.Zs(2)
	// multiply sets lo and hi to the halves of the products of x.
	multiply := func(m, x, lo, hi asmgen.Vec) {
		t := fn.Z()
		fn.I("VPSRLQ", asmgen.Imm(32), x, t)
		fn.I("VPMULUDQ", m, x, lo)
		fn.I("VPMULUDQ", m, t, t)
		fn.I("VMOVSHDUP", lo, hi)
		fn.I("VMOVSLDUP", t, high, lo)
		fn.I("VMOVDQA32", t, high, hi)
		fn.Free(t)
	}
	lo, hi := fn.Zs(2), fn.Zs(2)
	fn.CountDown(n, func() {
		for i := range w {
			fn.I("VMOVDQA64", start[i], w[i])
		}
		for i := range k {
			fn.I("VPBROADCASTD", key.At(4*i), k[i])
		}
		for range 10 {
			multiply(multiplier[0], w[0], lo[0], hi[0])
			multiply(multiplier[1], w[2], lo[1], hi[1])
			fn.I("VPTERNLOGD", asmgen.Imm(0x96), k[0], w[1], hi[1])
			fn.I("VPTERNLOGD", asmgen.Imm(0x96), k[1], w[3], hi[0])
			w[0], w[1], w[2], w[3], lo[0], hi[0], lo[1], hi[1] = hi[1], lo[1], hi[0], lo[0], w[0], w[1], w[2], w[3]
			for i := range k {
				fn.I("VPADDD", increase[i], k[i], k[i])
			}
		}
		fn.I("VPUNPCKLDQ", w[1], w[0], lo[0])
		fn.I("VPUNPCKHDQ", w[1], w[0], lo[1])
		fn.I("VPUNPCKLDQ", w[3], w[2], hi[0])
		fn.I("VPUNPCKHDQ", w[3], w[2], hi[1])
		for i := range 2 {
			fn.I("VPUNPCKLQDQ", hi[i], lo[i], w[0])
			fn.I("VPUNPCKHQDQ", hi[i], lo[i], w[1])
			fn.I("VMOVDQU64", w[0], out.At(128*i))
			fn.I("VMOVDQU64", w[1], out.At(128*i+64))
		}
		fn.I("VPADDD", sixteen, start[0], start[0])
		fn.I("ADDQ", asmgen.Imm(256), out)
	})
	fn.Return()
}
