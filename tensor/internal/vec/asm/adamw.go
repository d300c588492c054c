package main

// The optimizer's update as in ../adamw.go.

import "spmoe/tensor/asmgen"

func adamW(f *file) {
	k := f.kernel("adamW", rows("master", "m", "v", "grad"), float32s("c_gradScale", "c_decay", "c_lerp", "c_beta2",
		"c_oneMinusBeta2", "c_bias2Sqrt", "c_eps", "c_stepSize"))
	r := k.rows(fp32, "master", "m", "v", "grad")
	gradScale, decay, lerp, beta2 := k.float32("c_gradScale"), k.float32("c_decay"), k.float32("c_lerp"), k.float32("c_beta2")
	oneMinusBeta2, bias2Sqrt := k.float32("c_oneMinusBeta2"), k.float32("c_bias2Sqrt")
	eps, stepSize := k.float32("c_eps"), k.float32("c_stepSize")
	k.each("master_len", lanes, 1, func(int) {
		w, m, v, grad := k.load(r[0]), k.load(r[1]), k.load(r[2]), k.load(r[3])
		k.both(func(h int) []asmgen.Vec {
			w, m, v, g := w[h], m[h], v[h], grad[h]
			k.I("VMULPS", gradScale, g, g)

			change := k.op("VSUBPS", m, g)
			k.I("VMULPS", lerp, change, change)
			k.I("VADDPS", change, m, m)

			square := k.op("VMULPS", g, oneMinusBeta2)
			k.I("VMULPS", g, square, square)
			k.I("VMULPS", beta2, v, v)
			k.I("VADDPS", square, v, v)

			denom := k.op("VSQRTPS", v)
			k.I("VDIVPS", bias2Sqrt, denom, denom)
			k.I("VADDPS", eps, denom, denom)
			step := k.op("VMULPS", m, stepSize)
			k.I("VDIVPS", denom, step, step)
			k.I("VMULPS", decay, w, w)
			k.I("VSUBPS", step, w, w)
			return nil
		})
		k.store(m, r[1])
		k.store(v, r[2])
		k.store(w, r[0])
	})
	k.Return()
}
