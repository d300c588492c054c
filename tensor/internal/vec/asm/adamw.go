package main

// The optimizer's update as in ../adamw.go.

func adamW(f *file) {
	k := f.kernel("adamW", rows("master", "m", "v", "grad"), float32s("c_gradScale", "c_decay", "c_lerp", "c_beta2",
		"c_oneMinusBeta2", "c_bias2Sqrt", "c_eps", "c_stepSize"))
	p := k.pointers("master", "m", "v", "grad")
	gradScale, decay, lerp, beta2 := k.float32("c_gradScale"), k.float32("c_decay"), k.float32("c_lerp"), k.float32("c_beta2")
	oneMinusBeta2, bias2Sqrt := k.float32("c_oneMinusBeta2"), k.float32("c_bias2Sqrt")
	eps, stepSize := k.float32("c_eps"), k.float32("c_stepSize")
	k.each("master_len", 16, 1, func(int) {
		g := k.op("VMULPS", k.load(p[3]), gradScale)

		m := k.load(p[1])
		change := k.op("VSUBPS", m, g)
		k.I("VMULPS", lerp, change, change)
		k.I("VADDPS", change, m, m)
		k.store(m, p[1])

		v := k.op("VMULPS", beta2, k.load(p[2]))
		square := k.op("VMULPS", g, oneMinusBeta2)
		k.I("VMULPS", g, square, square)
		k.I("VADDPS", square, v, v)
		k.store(v, p[2])

		denom := k.op("VSQRTPS", v)
		k.I("VDIVPS", bias2Sqrt, denom, denom)
		k.I("VADDPS", eps, denom, denom)
		step := k.op("VMULPS", m, stepSize)
		k.I("VDIVPS", denom, step, step)
		w := k.op("VMULPS", decay, k.load(p[0]))
		k.store(k.op("VSUBPS", step, w), p[0])
	})
	k.Return()
}
