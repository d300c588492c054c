package main

// Sums of words, as in ../wordsum.go. They stay in memory: kernels that have other work lack the
// registers, and their loops take longer than a sum through memory.

import "spmoe/tensor/asmgen"

// words sums the words of a row.
func words[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("words", e), vectors(e, "x"), []asmgen.Param{asmgen.Arg("sums", "*Lanes")})
		x, sum := k.row("x", e), k.wordSums("sums")
		k.each("x_len", noPeriod, func(int) { sum(0, e, k.load(x), false) })
		k.Return()
	}
}

// lanesBytes is the size of Lanes.
const lanesBytes = 64

func (k *kernel) wordSums(param string) func(i int, e elem, v pair, stored bool) {
	base := k.Load(param)
	return func(i int, e elem, v pair, stored bool) {
		at := base.At(lanesBytes * i)
		sum := k.op("VMOVUPS", at)
		for h, x := range v {
			word := x
			if e == bf16 && stored {
				word = k.rounded(x, isOdd[k.copy%2][h])
				k.I("VPSRLD", asmgen.Imm(16), word, word)
			} else if e == bf16 {
				word = k.op("VPSRLD", asmgen.Imm(16), x)
			}
			if stored {
				k.merged(halves[h], "VPADDD", word, sum, sum)
			} else { // load has cleared what is masked
				k.I("VPADDD", word, sum, sum)
			}
			if e == bf16 {
				k.release(word)
			}
		}
		k.I("VMOVUPS", sum, at)
		k.release(sum)
	}
}

func (k *neonKernel) wordSums(param string) func(i int, e elem, v neonPair, stored bool) {
	base := k.Load(param)
	return func(i int, e elem, v neonPair, stored bool) {
		at, sum := base.At(lanesBytes*i), k.temp()
		k.I("FMOVQ", at, sum)
		for h, x := range v {
			var word asmgen.Neon
			switch {
			case e == fp32:
				word = k.copyOf(x)
			case stored:
				word = k.rounded(x)
				k.shift("VUSHR", 16, word, word)
			default:
				word = k.temp()
				k.shift("VUSHR", 16, x, word)
			}
			if stored { // load has filled up with zeros
				k.existing(h, word)
			}
			k.lanes("VADD", word, sum, sum)
			k.release(word)
		}
		k.I("FMOVQ", sum, at)
		k.release(sum)
	}
}
