package main

// Conversions, sums and products of rows, and the optimizer's update, on NEON.

import "spmoe/tensor/asmgen"

// splitIf selects split order for kernels that have only BF16 rows.
func (k *neonKernel) splitIf(e elem) {
	if e == bf16 {
		k.split()
	}
}

func (f *neonFile) convert() {
	k := f.newKernel("widen", rows("dst", "src"))
	dst, src := k.row("dst", fp32), k.row("src", bf16)
	k.each("dst_len", 8, 1, func(int) { k.store(k.load(src), dst) })
	k.Return()

	k = f.newKernel("round", rows("dst", "src"))
	dst, src = k.row("dst", bf16), k.row("src", fp32)
	k.rounding(bf16)
	k.each("dst_len", 8, 1, func(int) { k.store(k.load(src), dst) })
	k.Return()
}

func (f *neonFile) add() {
	for _, e := range variants {
		k := f.newKernel(kernelName("add", e), rows("dst", "x", "y"))
		k.splitIf(e)
		r := k.rows(e, "dst", "x", "y")
		k.rounding(e)
		k.each("dst_len", 8, 1, func(int) {
			x, y := k.load(r[1]), k.load(r[2])
			k.pairwise("VFADD", y, x, x)
			k.store(x, r[0])
		})
		k.Return()
	}
}

// addScaled has FP32 sums in both variants.
func (f *neonFile) addScaled() {
	for _, e := range variants {
		k := f.newKernel(kernelName("addScaled", e), rows("dst"), float32s("a"), rows("x"))
		dst, x, a := k.row("dst", fp32), k.row("x", e), k.float32("a")
		k.each("dst_len", 8, 1, func(int) {
			ax, sum := k.load(x), k.load(dst)
			k.scaled(a, ax)
			k.pairwise("VFADD", ax, sum, sum)
			k.store(sum, dst)
		})
		k.Return()
	}
}

// scale reads FP32 in both variants.
func (f *neonFile) scale() {
	for _, e := range variants {
		k := f.newKernel(kernelName("scale", e), rows("dst"), float32s("a"), rows("x"))
		dst, x, a := k.row("dst", e), k.row("x", fp32), k.float32("a")
		k.rounding(e)
		k.each("dst_len", 8, 1, func(int) {
			ax := k.load(x)
			k.scaled(a, ax)
			k.store(ax, dst)
		})
		k.Return()
	}
}

func (f *neonFile) sumBlocks() {
	for _, e := range variants {
		k := f.newKernel(kernelName("sumBlocks", e), rows("dst", "x"), ints("blocks", "stride"))
		k.splitIf(e)
		dst, x := k.row("dst", e), k.row("x", e)
		k.rounding(e)
		stride, left, block := k.Load("stride"), k.GP(), k.GP()
		k.I("LSL", asmgen.Imm(int(e)/2), stride) // 1 for 2 bytes, 2 for 4
		k.each("dst_len", 8, 1, func(int) {
			sum := neonPair{k.temp(), k.temp()}
			k.clear(sum[0])
			k.clear(sum[1])
			if k.part {
				k.partSize(int(e)) // before the loop
			}
			k.I("MOVD", x.base, block)
			k.I("MOVD", k.Slot("blocks"), left)
			k.CountDown(left, func() {
				v := k.loadAt(block.At(0), e)
				k.pairwise("VFADD", v, sum, sum)
				k.release(v[0], v[1])
				k.I("ADD", stride, block)
			})
			k.store(sum, dst)
		})
		k.Return()
	}
}

func (f *neonFile) adamW() {
	for _, moments := range variants {
		k := f.newKernel(kernelName("adamW", moments), adamWParams()...)
		names := func(state string) []neonRow {
			n := stateSlices(state)
			return append([]neonRow{k.row(n[0], fp32)}, k.rows(moments, n[1:]...)...)
		}
		to, from, gradient := names("dst"), names("src"), k.row("grad", fp32)
		k.rounding(moments)
		gradScale, decay, lerp, beta2 := k.float32("c_gradScale"), k.float32("c_decay"), k.float32("c_lerp"), k.float32("c_beta2")
		oneMinusBeta2, bias2Sqrt := k.float32("c_oneMinusBeta2"), k.float32("c_bias2Sqrt")
		eps, stepSize := k.float32("c_eps"), k.float32("c_stepSize")
		k.each("grad_len", 8, 1, func(int) {
			w, m, v, grad := k.load(from[0]), k.load(from[1]), k.load(from[2]), k.load(gradient)
			k.eachHalf(func(h int) {
				w, m, v, g := w[h], m[h], v[h], grad[h]
				k.do("VFMUL", gradScale, g, g)
				change := k.op("VFSUB", m, g)
				k.do("VFMUL", lerp, change, change)
				k.do("VFADD", change, m, m)
				square := k.op("VFMUL", g, oneMinusBeta2)
				k.do("VFMUL", g, square, square)
				k.do("VFMUL", beta2, v, v)
				k.do("VFADD", square, v, v)
				denom := k.op("VFSQRT", v)
				k.do("VFDIV", bias2Sqrt, denom, denom)
				k.do("VFADD", eps, denom, denom)
				step := k.op("VFMUL", m, stepSize)
				k.do("VFDIV", denom, step, step)
				k.do("VFMUL", decay, w, w)
				k.do("VFSUB", step, w, w)
			})
			k.store(m, to[1])
			k.store(v, to[2])
			k.store(w, to[0])
		})
		k.Return()
	}
}
