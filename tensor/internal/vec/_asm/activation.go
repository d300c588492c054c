package main

// The sigmoid function, SwiGLU and softmax, with their gradients.

import "spmoe/tensor/asmgen"

func sigmoid[V asmgen.Operand](t target[V]) {
	k := t.newKernel("sigmoid", vectors(fp32, "dst", "x"))
	r := rows(k, fp32, "dst", "x")
	exp, one := k.exponential(true, true), k.number(1)
	k.each("dst_len", noPeriod, func(int) {
		x := k.load(r[1])
		k.eachHalf(func(h int) {
			exp(x[h])
			k.do(add, one, x[h], x[h])
			k.do(divide, x[h], one, x[h])
		})
		k.store(x, r[0])
	})
	k.Return()
}

// denominator returns 1 + exp(-g), which is 1/sigmoid(g). If g is NaN, it returns an arbitrary
// number.
func denominator[V asmgen.Operand](k machine[V], exp func(V), one asmgen.Operand, g V) V {
	d := k.copyOf(g)
	exp(d)
	k.do(add, one, d, d)
	return d
}

func swiGLU[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("swiGLU", e), vectors(e, "h", "gate", "up"))
		k.fewRegistersLeft()
		splitIf(k, e)
		r := rows(k, e, "h", "gate", "up")
		k.rounding(e)
		exp, one := k.exponential(true, false), k.number(1)
		k.eachInterleaved("h_len", 64, func(int) {
			g := k.load(r[1])
			k.eachHalf(func(h int) { k.do(divide, denominator(k, exp, one, g[h]), g[h], g[h]) })
			u := k.load(r[2])
			pairwise(k, mul, u, g, g)
			k.store(g, r[0])
		})
		k.Return()
	}
}

func swiGLUBackward[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("swiGLUBackward", e), vectors(e, "dgate", "dup", "dh", "gate", "up"))
		splitIf(k, e)
		r := rows(k, e, "dgate", "dup", "dh", "gate", "up")
		k.rounding(e)
		exp, one := k.exponential(true, false), k.number(1)
		k.each("dh_len", noPeriod, func(int) {
			d, g, u := k.load(r[2]), k.load(r[3]), k.load(r[4])
			k.eachHalf(func(h int) {
				s := k.made(divide, denominator(k, exp, one, g[h]), one)
				slope := k.made(sub, s, one)
				k.do(mul, g[h], slope, slope)
				k.do(add, one, slope, slope)
				k.do(mul, d[h], u[h], u[h])
				k.do(mul, s, u[h], u[h])
				k.do(mul, slope, u[h], u[h])
				k.do(mul, d[h], g[h], g[h])
				k.do(mul, s, g[h], g[h])
			})
			k.store(u, r[0])
			k.store(g, r[1])
		})
		k.Return()
	}
}

func expSum[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("expSum", e), vectors(e, "dst"), float32s("a"), vectors(fp32, "x"), float32s("shift"), result("float32"))
		dst, src, a, shift := k.row("dst", e), k.row("x", fp32), k.float32("a"), k.float32("shift")
		k.rounding(e)
		exp, sums := k.exponential(false, true), k.zeros(16)
		prefetch := k.prefetchNext(src, "x_len")
		k.each("dst_len", 16, func(j int) {
			prefetch()
			x := k.load(src)
			k.eachHalf(func(h int) {
				k.do(mul, a, x[h], x[h])
				k.do(sub, shift, x[h], x[h])
				exp(x[h])
				k.addElements(h, x[h], sums[(2*j+h)%len(sums)])
			})
			k.store(x, dst)
		})
		k.returnSum(sums)
	}
}

func softmaxBackward[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("softmaxBackward", e), vectors(e, "p", "ds"), float32s("a"), vectors(fp32, "s", "dp"),
			float32s("lse", "delta"))
		p, ds, s, dp := k.row("p", e), k.row("ds", e), k.row("s", fp32), k.row("dp", fp32)
		k.rounding(e)
		a, lse, delta := k.float32("a"), k.float32("lse"), k.float32("delta")
		exp := k.exponential(false, true)
		k.each("p_len", noPeriod, func(int) {
			x, d := k.load(s), k.load(dp)
			k.eachHalf(func(h int) {
				k.do(mul, a, x[h], x[h])
				k.do(sub, lse, x[h], x[h])
				exp(x[h])
				k.do(sub, delta, d[h], d[h])
				k.do(mul, k.made(mul, x[h], a), d[h], d[h])
			})
			k.store(x, p)
			k.store(d, ds)
		})
		k.Return()
	}
}
