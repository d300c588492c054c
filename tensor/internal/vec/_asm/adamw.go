package main

// The optimizer's update as in ../adamw.go.

import "spmoe/tensor/asmgen"

// The sums of AdamWSums, in its order.
const (
	readMaster = iota
	readExpAvg
	readExpAvgSq
	readGrad
	wroteMaster
	wroteExpAvg
	wroteExpAvgSq
	wroteWork
)

// adamW has two variants for each type of the moments: one for results that are read again soon,
// and one with non-temporal stores.
func adamW[V asmgen.Operand](t target[V]) {
	for _, moments := range variants {
		k := t.newKernel(kernelName("adamW", moments), adamWParams(moments))
		update(k, moments, k.store)
		k.Return()
		if t.streams() {
			k = t.newKernel(kernelName("adamWStreaming", moments), adamWParams(moments))
			update(k, moments, k.stream)
			k.fence()
			k.Return()
		}
	}
}

func adamWParams(moments elem) []asmgen.Param {
	state := "AdamWState"
	if moments == bf16 {
		state += "BF16"
	}
	fields := append(vectors(fp32, "Master"), vectors(moments, "ExpAvg", "ExpAvgSq")...)
	constants := float32s("gradScale", "decay", "lerp", "beta2", "oneMinusBeta2", "bias2Sqrt", "eps", "stepSize")
	return []asmgen.Param{asmgen.Struct("dst", state, fields...), asmgen.Struct("src", state, fields...), asmgen.Arg("grad", "[]float32"),
		asmgen.Struct("c", "AdamWStep", constants...), asmgen.Arg("sums", "*AdamWSums")}
}

// stateRows loads the addresses of the slices of an AdamWState.
func stateRows[V any](k machine[V], state string, moments elem) []row {
	return append(rows(k, fp32, state+"_Master"), rows(k, moments, state+"_ExpAvg", state+"_ExpAvgSq")...)
}

// update prints the loop, which stores with the given function. The weights are updated by moments
// that are not rounded yet.
func update[V asmgen.Operand](k machine[V], moments elem, store func(v [2]V, r row)) {
	to, from, gradient := stateRows(k, "dst", moments), stateRows(k, "src", moments), k.row("grad", fp32)
	k.rounding(bf16)
	sum := k.wordSums("sums")
	gradScale, decay, lerp, beta2 := k.float32("c_gradScale"), k.float32("c_decay"), k.float32("c_lerp"), k.float32("c_beta2")
	oneMinusBeta2, bias2Sqrt := k.float32("c_oneMinusBeta2"), k.float32("c_bias2Sqrt")
	eps, stepSize := k.float32("c_eps"), k.float32("c_stepSize")
	k.each("grad_len", noPeriod, func(int) {
		w, m, v, grad := k.load(from[0]), k.load(from[1]), k.load(from[2]), k.load(gradient)
		sum(readMaster, fp32, w, false)
		sum(readExpAvg, moments, m, false)
		sum(readExpAvgSq, moments, v, false)
		sum(readGrad, fp32, grad, false)
		k.eachHalf(func(h int) {
			w, m, v, g := w[h], m[h], v[h], grad[h]
			k.do(mul, gradScale, g, g)

			change := k.made(sub, m, g)
			k.do(mul, lerp, change, change)
			k.do(add, change, m, m)

			square := k.made(mul, g, oneMinusBeta2)
			k.do(mul, g, square, square)
			k.do(mul, beta2, v, v)
			k.do(add, square, v, v)

			denom := k.made(root, v)
			k.do(divide, bias2Sqrt, denom, denom)
			k.do(add, eps, denom, denom)
			step := k.made(mul, m, stepSize)
			k.do(divide, denom, step, step)
			k.do(mul, decay, w, w)
			k.do(sub, step, w, w)
		})
		k.release(grad[0], grad[1])
		sum(wroteMaster, fp32, w, true)
		sum(wroteExpAvg, moments, m, true)
		sum(wroteExpAvgSq, moments, v, true)
		sum(wroteWork, bf16, w, true)
		store(m, to[1])
		store(v, to[2])
		store(w, to[0])
	})
}
