package main

// Kernels without a result of their own: sums, products and the gradient of softmax.

func add(f *file) {
	k := f.kernel("add", rows("dst", "x", "y"))
	p := k.pointers("dst", "x", "y")
	k.each("dst_len", 16, 1, func(int) {
		k.store(k.op("VADDPS", k.load(p[2]), k.load(p[1])), p[0])
	})
	k.Return()
}

func addScaled(f *file) {
	k := f.kernel("addScaled", rows("dst"), float32s("a"), rows("x"))
	p, a := k.pointers("dst", "x"), k.float32("a")
	k.each("dst_len", 16, 1, func(int) {
		ax := k.op("VMULPS", k.load(p[1]), a)
		k.store(k.op("VADDPS", ax, k.load(p[0])), p[0])
	})
	k.Return()
}

func scale(f *file) {
	k := f.kernel("scale", rows("dst"), float32s("a"), rows("x"))
	p, a := k.pointers("dst", "x"), k.float32("a")
	k.each("dst_len", 16, 1, func(int) {
		k.store(k.op("VMULPS", k.load(p[1]), a), p[0])
	})
	k.Return()
}

func mulScaled(f *file) {
	k := f.kernel("mulScaled", rows("dst"), float32s("a"), rows("x", "y"))
	p, a := k.pointers("dst", "x", "y"), k.float32("a")
	k.each("dst_len", 16, 1, func(int) {
		ax := k.op("VMULPS", k.load(p[1]), a)
		k.store(k.op("VMULPS", k.load(p[2]), ax), p[0])
	})
	k.Return()
}

func addMulScaled(f *file) {
	k := f.kernel("addMulScaled", rows("dst"), float32s("a"), rows("x", "y"))
	p, a := k.pointers("dst", "x", "y"), k.float32("a")
	k.each("dst_len", 16, 1, func(int) {
		ax := k.op("VMULPS", k.load(p[1]), a)
		axy := k.op("VMULPS", k.load(p[2]), ax)
		k.store(k.op("VADDPS", axy, k.load(p[0])), p[0])
	})
	k.Return()
}

func softmaxBackward(f *file) {
	k := f.kernel("softmaxBackward", rows("ds"), float32s("a", "delta"), rows("p", "dp"))
	p, a, delta := k.pointers("ds", "p", "dp"), k.float32("a"), k.float32("delta")
	k.each("ds_len", 16, 1, func(int) {
		ap := k.op("VMULPS", k.load(p[1]), a)
		difference := k.op("VSUBPS", delta, k.load(p[2]))
		k.store(k.op("VMULPS", difference, ap), p[0])
	})
	k.Return()
}
