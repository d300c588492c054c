// Command asm prints the AVX-512 and AVX2 row kernels of package vec. They perform the operations
// of the functions in vec_generic.go in the same order, so the results agree bit for bit.
package main

import (
	"log"

	"spmoe/tensor/asmgen"
)

func main() {
	if err := asmgen.Write(".", files()); err != nil {
		log.Fatal(err)
	}
}

func files() map[string]string {
	return map[string]string{"vec_avx512_amd64.s": kernels(false), "vec_avx2_amd64.s": kernels(true), "vec_neon_arm64.s": neonKernels()}
}

func kernels(avx2 bool) string {
	f := newFile(avx2)
	for _, emit := range []func(*file){
		widen, round,
		add, addScaled, scale, sumBlocks,
		split, mulScaled, normWeightGrad, normInputGrad, rotate,
		sigmoid, swiGLU, swiGLUBackward,
		expSum, softmaxBackward,
		dot, squares, sumSquares, maximum,
		adamW,
	} {
		emit(f)
	}
	return f.Asm()
}

func neonKernels() string {
	f := newNEONFile()
	f.convert()
	f.add()
	f.addScaled()
	f.scale()
	f.sumBlocks()
	f.split()
	f.mulScaled()
	f.normWeightGrad()
	f.normInputGrad()
	f.rotate()
	f.sigmoid()
	f.swiGLU()
	f.swiGLUBackward()
	f.expSum()
	f.softmaxBackward()
	f.dot()
	f.squares()
	f.sumSquares()
	f.maximum()
	f.adamW()
	return f.Asm()
}
