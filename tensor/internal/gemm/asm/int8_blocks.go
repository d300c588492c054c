package main

// How a block's integer sums start and how they are scaled into FP32 sums. Both ways have the same
// bits where both apply.
//
// A block of 32 takes 8 VPDPBUSD for each vector of sums. These and FP32 multiplications share two
// pipes of Zen 5, where additions have two others. Multiplying by both scales makes that 10
// instructions, which bounds a product to 80 % of the peak of VPDPBUSD. Exponents are added on any
// pipe, and then only additions remain.

import "spmoe/tensor/asmgen"

// int8Block is what a block's start and end need of the microkernel.
type int8Block struct {
	fn          *asmgen.Func
	a, b        asmgen.Reg
	sums, parts [][]asmgen.Vec
	bs, spare   []asmgen.Vec
}

// column returns vector j of a step of the column panel.
func (k int8Block) column(step, j int) asmgen.Mem { return k.b.At(128*step + 64*j) }

// scale returns the scale of row i.
func (k int8Block) scale(i int) asmgen.Mem { return k.a.At(4 * (recordScaleA*len(k.parts) + i)) }

// blockScaling generates the start and the end of a block.
type blockScaling interface {
	start()
	finish()
}

// int8Scaling is a way to scale.
type int8Scaling struct {
	prefix, doc string
	frame       func(int8Block) blockScaling
}

// int8Multiplied multiplies by the scale of the column and then, in the multiply-add, by that of
// the row.
var int8Multiplied = int8Scaling{"int8AVX512", "", func(k int8Block) blockScaling { return multipliedBlock{k} }}

type multipliedBlock struct{ int8Block }

func (k multipliedBlock) start() {
	for j, v := range k.bs {
		k.fn.I("VMOVUPS", k.column(recordSums, j), v)
	}
	for _, p := range k.parts {
		for j, v := range p {
			k.fn.I("VMOVDQA64", k.bs[j], v)
		}
	}
}

func (k multipliedBlock) finish() {
	for j, v := range k.bs {
		k.fn.I("VMOVUPS", k.column(recordScales, j), v)
	}
	for i, p := range k.parts {
		for j, v := range p {
			k.fn.I("VCVTDQ2PS", v, v)
			k.fn.I("VMULPS", k.bs[j], v, v)
			k.fn.I("VFMADD231PS.BCST", k.scale(i), v, k.sums[i][j])
		}
	}
}

// newInt8Exponents starts integer sums at the bits of the FP32 number 1.5·2^(23+e), where e is the
// exponent of both scales. One more in the integer is then 2^e more in the number. At the end that
// number is subtracted, which is exact, and the difference is added.
func newInt8Exponents(f *asmgen.File) int8Scaling {
	// The bits of 1.5·2^23, less twice the bias of the scales' exponents.
	origin := f.Data32("origin", 0xcc40_0000)
	return int8Scaling{"int8AVX512Exponent", " It adds the scales to exponents.", func(k int8Block) blockScaling {
		e := exponentBlock{k, k.fn.Z(), k.fn.Zs(2)}
		k.fn.I("VPBROADCASTD", origin, e.origin)
		return e
	}}
}

type exponentBlock struct {
	int8Block
	origin asmgen.Vec
	bases  []asmgen.Vec // the origins of the columns
}

func (k exponentBlock) start() {
	for j, v := range k.bases {
		k.fn.I("VPADDD", k.column(recordScales, j), k.origin, v)
		k.fn.I("VPADDD", k.column(recordSums, j), v, k.bs[j])
	}
	for i, p := range k.parts {
		for j, v := range p {
			k.fn.I("VPADDD.BCST", k.scale(i), k.bs[j], v)
		}
	}
}

func (k exponentBlock) finish() {
	for i, p := range k.parts {
		for j, v := range p {
			k.fn.I("VPADDD.BCST", k.scale(i), k.bases[j], k.spare[j])
			k.fn.I("VSUBPS", k.spare[j], v, v)
			k.fn.I("VADDPS", v, k.sums[i][j], k.sums[i][j])
		}
	}
}
