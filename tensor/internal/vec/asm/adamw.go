package main

// The optimizer's update as in ../adamw.go.

import "spmoe/tensor/asmgen"

// adamW has two variants for each type of the moments: one for results that are read again soon,
// and one with non-temporal stores.
func adamW(f *file) {
	for _, moments := range variants {
		k := f.newKernel(kernelName("adamW", moments), adamWParams()...)
		update(k, moments, (*kernel).store)
		k.Return()
		k = f.newKernel(kernelName("adamWStreaming", moments), adamWParams()...)
		update(k, moments, (*kernel).stream)
		k.I("SFENCE")
		k.Return()
	}
}

func adamWParams() [][]asmgen.Param {
	return [][]asmgen.Param{rows(stateSlices("dst")...), rows(stateSlices("src")...), rows("grad"), float32s("c_gradScale", "c_decay",
		"c_lerp", "c_beta2", "c_oneMinusBeta2", "c_bias2Sqrt", "c_eps", "c_stepSize")}
}

// stateSlices returns the names of the slices of an AdamWState.
func stateSlices(state string) []string {
	return []string{state + "_Master", state + "_ExpAvg", state + "_ExpAvgSq"}
}

// stateRows loads the addresses of the slices of an AdamWState.
func (k *kernel) stateRows(state string, moments elem) []row {
	names := stateSlices(state)
	return append(k.rows(fp32, names[0]), k.rows(moments, names[1:]...)...)
}

// update prints the loop, which stores with the given function. The weights are updated by moments
// that are not rounded yet.
func update(k *kernel, moments elem, store func(k *kernel, v pair, r row)) {
	to, from, gradient := k.stateRows("dst", moments), k.stateRows("src", moments), k.row("grad", fp32)
	k.rounding(moments)
	gradScale, decay, lerp, beta2 := k.float32("c_gradScale"), k.float32("c_decay"), k.float32("c_lerp"), k.float32("c_beta2")
	oneMinusBeta2, bias2Sqrt := k.float32("c_oneMinusBeta2"), k.float32("c_bias2Sqrt")
	eps, stepSize := k.float32("c_eps"), k.float32("c_stepSize")
	k.each("grad_len", lanes, 1, func(int) {
		w, m, v, grad := k.load(from[0]), k.load(from[1]), k.load(from[2]), k.load(gradient)
		k.eachHalf(func(h int) []asmgen.Vec {
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
		store(k, m, to[1])
		store(k, v, to[2])
		store(k, w, to[0])
	})
}
