//go:build !purego

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/inspecting"
	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// A tier uses the same rows on every CPU: of matrix products, quantization, streams,
// tensor cores and vectors.
func TestRowsOfTiers(t *testing.T) {
	want := map[cpu.Tier]string{
		cpu.Generic:    "generic generic generic generic generic",
		cpu.AVX2:       "avx2 avx2 avx2 avx2 avx2",
		cpu.AVX512:     "avx512 avx512 avx512 avx512 avx512",
		cpu.AVX512BF16: "avx512bf16 avx512 avx512 avx512 avx512",
		cpu.AMX:        "amx avx512 avx512 avx512 avx512",
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

// What is said of a CPU's tiers names the features that decide.
func TestWriteTiers(t *testing.T) {
	tests := []struct {
		cpu   string
		used  cpu.Tier
		lines []string
	}{
		{"Zen 5", cpu.AVX512BF16, []string{
			"tier: avx512bf16 tiers of this CPU",
			"avx2 found",
			"avx512bf16 in use",
			"amx missing no AMXTILE, AMXBF16, permission for tile registers",
			"matrix products avx512bf16",
			"quantization avx512",
		}},
		{"Zen 5", cpu.AVX2, []string{
			"tier: avx2, lowered from avx512bf16 by SPMOE_CPU",
			"avx2 in use",
			"avx512bf16 found",
			"streams avx2",
		}},
	}
	for _, tt := range tests {
		i := slices.IndexFunc(cputest.CPUs, func(c cputest.CPU) bool { return c.Name == tt.cpu })
		var out strings.Builder
		if err := inspecting.WriteTiers(&out, cputest.CPUs[i].Features, tt.used); err != nil {
			t.Fatal(err)
		}
		words := fmt.Sprintln(strings.Join(strings.Fields(out.String()), " "))
		for _, line := range tt.lines {
			if !strings.Contains(words, line) {
				t.Errorf("no %q for %s:\n%s", line, tt.cpu, out.String())
			}
		}
	}
}
