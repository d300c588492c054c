// Command asm generates the assembly of package gemm.
package main

import "spmoe/tensor/asmgen"

func main() { asmgen.Main(files()) }

// files returns everything that the generator writes, by file name.
func files() map[string]string {
	out := map[string]string{}
	add := func(name, arch string, f *asmgen.File, fill func(*asmgen.File)) {
		fill(f)
		out[name+"_"+arch+".s"] = f.Asm()
		out[name+"_"+arch+".go"] = f.Stubs()
	}
	for name, fill := range filesAMD64 {
		add(name, "amd64", asmgen.NewFile("gemm", "go run ./_asm", "amd64 && !purego"), fill)
	}
	for name, fill := range filesARM64 {
		add(name, "arm64", asmgen.NewFileARM64("gemm", "go run ./_asm", "arm64 && !purego"), fill)
	}
	return out
}

var filesAMD64 = map[string]func(*asmgen.File){
	"panels_bf16_amx":        amx,
	"panels_bf16_avx512":     bf16AVX512.tiles,
	"panels_fp32_avx2":       fp32AVX2.tiles,
	"panels_fp32_avx512":     fp32AVX512.tiles,
	"panels_pack_avx2":       packAVX2,
	"panels_pack_avx512":     packAVX512,
	"fewrows_direct_avx2":    directAVX2,
	"fewrows_transposed_amx": transposedAMX,
	"codes_decode_avx2":      decodeAVX2,
	"codes_decode_avx512":    decodeAVX512,
}

var filesARM64 = map[string]func(*asmgen.File){
	"panels_bf16_neon":  tilesBF16NEON,
	"panels_fp32_neon":  tilesNEON,
	"panels_pack_neon":  packNEON,
	"codes_decode_neon": decodeNEON,
}
