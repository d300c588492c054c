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

// files returns the text of the generated files by name.
func files() map[string]string {
	tiles := newTileFile()
	narrow(tiles)
	drain(tiles)
	scan(tiles)
	encode(tiles)
	lanes, e4m3 := printLanes(), e4m3File()
	neon := neonLanes()
	return map[string]string{
		"lanes_neon_arm64.s": neon.Asm(), "lanes_neon_arm64.go": neon.Stubs(),
		"quant_avx512_amd64.s": tiles.Asm(), "quant_avx512_amd64.go": tiles.Stubs(),
		"quant_avx2_amd64.s": lanes.Asm(), "quant_avx2_amd64.go": lanes.Stubs(),
		"e4m3_avx512_amd64.s": e4m3.Asm(), "e4m3_avx512_amd64.go": e4m3.Stubs(),
	}
}
