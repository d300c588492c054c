//go:build !purego

package main

import (
	"strings"
	"testing"

	"spmoe/tensor/cpu"
)

// A tier uses the same rows on every CPU: of initial weights, matrix products, quantization,
// streams, tensor cores and vectors.
func TestRowsOfTiers(t *testing.T) {
	want := map[cpu.Tier]string{
		cpu.Generic:    "generic generic generic generic generic generic",
		cpu.AVX2:       "generic avx2 avx2 avx2 avx2 avx2",
		cpu.AVX512:     "avx512 avx512 avx512 avx512 avx512 avx512",
		cpu.AVX512BF16: "avx512 avx512bf16 avx512 avx512 avx512 avx512",
		cpu.AMX:        "avx512 amx avx512 avx512 avx512 avx512",
	}
	for tier, want := range want {
		var rows []string
		for _, family := range cpu.Families() {
			rows = append(rows, family.Row(tier).String())
		}
		if got := strings.Join(rows, " "); got != want {
			t.Errorf("%v uses the kernels of %s, want %s", tier, got, want)
		}
	}
}
