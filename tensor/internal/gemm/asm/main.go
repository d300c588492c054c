// Command asm generates the assembly of package gemm.
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
	out := map[string]string{}
	for name, fill := range map[string]func(*asmgen.File){
		"bf16_avx512":        bf16AVX512.tiles,
		"fp32_avx512":        fp32AVX512.tiles,
		"fp32_avx2":          fp32AVX2.tiles,
		"pack_avx512":        packAVX512,
		"pack_avx2":          packAVX2,
		"decode_avx2":        decodeAVX2,
		"decode_avx512":      decodeAVX512,
		"int8_avx512":        int8AVX512,
		"int8_avx2":          int8AVX2,
		"direct_int8_avx512": directInt8,
		"across_bf16_avx512": acrossBF16,
		"across_mx_avx512":   acrossMX,
		"across_bf16_avx2":   acrossAVX2,
		"across_e4m3_avx2":   acrossE4M3AVX2,
		"direct_bf16_avx512": directBF16,
		"direct_avx2":        directAVX2,
		"direct_mx_avx2":     directMXAVX2,
		"direct_mx_avx512":   directMX,
		"across_amx":         acrossAMX,
		"bf16_amx":           amx,
		"int8_amx":           amxInt8,
	} {
		f := asmgen.NewFile("gemm", "go run ./asm", "amd64 && !purego")
		fill(f)
		out[name+"_amd64.s"] = f.Asm()
		out[name+"_amd64.go"] = f.Stubs()
	}
	return out
}
