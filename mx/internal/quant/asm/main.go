// Command asm generates the assembly of package quant.
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

// files is all that the generator prints, by name.
func files() map[string]string {
	f := newFile()
	narrow(f)
	scan(f)
	encode(f, false)
	encode(f, true)
	return map[string]string{"quant_avx512_amd64.s": f.Asm(), "quant_avx512_amd64.go": f.Stubs()}
}
