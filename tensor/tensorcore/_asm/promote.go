package main

import "spmoe/tensor/asmgen"

// promote adds the sums of chains to totals in FP32.
func (m *machine) promote() {
	k := m.begin("promote", "promote"+m.name+" adds round(sums·a)·b to a row of totals of a tile, with one rounding. There is a factor b per column.",
		asmgen.Arg("totals", "*float32"), asmgen.Arg("sums", "*float32"), asmgen.Arg("a", "float32"), asmgen.Arg("b", "*float32"))
	totals, sums, b := k.Load("totals"), k.Load("sums"), k.Load("b")
	a, x, y := k.vec(), k.vec(), k.vec()
	k.I("VBROADCASTSS", k.Slot("a"), a)
	for v := range vectors {
		at := v * m.bytes
		k.I("VMULPS", sums.At(at), a, x)
		k.I("VMOVUPS", totals.At(at), y)
		k.I("VFMADD231PS", b.At(at), x, y)
		k.I("VMOVUPS", y, totals.At(at))
	}
	k.Return()
}
