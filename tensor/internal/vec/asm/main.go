// Command asm prints the AVX-512 row kernels of package vec. They do the operations of the functions in vec_generic.go in
// the same order, so that the results agree bit for bit.
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
	f := newFile()
	for _, emit := range []func(*file){
		widen, round,
		add, addScaled, scale, sumBlocks,
		mulScaled, normWeightGrad, normInputGrad, rotate,
		sigmoid, swiGLU, swiGLUBackward,
		expSum, softmaxBackward,
		dot, squares, sumSquares, maximum,
		adamW,
	} {
		emit(f)
	}
	return map[string]string{"vec_avx512_amd64.s": f.Asm()}
}
