// Command asm generates the assembly of package quant.
package main

import "spmoe/tensor/asmgen"

func main() { asmgen.Main(files()) }

// files returns the text of the generated files by name.
func files() map[string]string {
	tiles := newTileFile()
	drain(tiles)
	scan(tiles)
	encode(tiles)
	lanes, neon := printLanes(), neonLanes()
	return map[string]string{
		"lanes_neon_arm64.s": neon.Asm(), "lanes_neon_arm64.go": neon.Stubs(),
		"quant_avx512_amd64.s": tiles.Asm(), "quant_avx512_amd64.go": tiles.Stubs(),
		"quant_avx2_amd64.s": lanes.Asm(), "quant_avx2_amd64.go": lanes.Stubs(),
	}
}
