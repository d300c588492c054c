package cpu_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

func TestChoose(t *testing.T) {
	all := strings.ReplaceAll(strings.Trim(fmt.Sprint(named(t, "Zen 5").Features.Tiers()), "[]"), " ", ", ")
	tests := []struct {
		env, cpu string
		want     cpu.Tier
		problem  string
	}{
		{"", "Zen 5", cpu.AVX512BF16, ""},
		{"", "Haswell", cpu.AVX2, ""},
		{"generic", "Zen 5", cpu.Generic, ""},
		{"AVX2", "Zen 5", cpu.AVX2, ""},
		{"avx512", "Zen 5", cpu.AVX512, ""},
		{"avx512bf16", "Sapphire Rapids", cpu.AVX512BF16, ""},
		{"avx512", "Haswell", cpu.AVX2, "SPMOE_CPU=avx512 is a tier this CPU or build does not have (no AVX512F, AVX512BW, AVX512DQ, AVX512VL, AVX512VBMI, GFNI): unset it or use generic, avx2"},
		{"amx", "Sapphire Rapids without permission for tiles", cpu.AVX512,
			"SPMOE_CPU=amx is a tier this CPU or build does not have (no permission for tile registers): unset it or use " + all},
		{"sse9", "Zen 5", cpu.AVX512BF16, "SPMOE_CPU=sse9 is not a tier: unset it or use " + all},
	}
	for _, tt := range tests {
		got, err := cpu.ChooseTier(tt.env, named(t, tt.cpu).Features)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got != tt.want || message != tt.problem {
			t.Errorf("%q on %s: %v, %q; want %v, %q", tt.env, tt.cpu, got, message, tt.want, tt.problem)
		}
	}
}

func named(t *testing.T, name string) cputest.CPU {
	t.Helper()
	i := slices.IndexFunc(cputest.CPUs, func(c cputest.CPU) bool { return c.Name == name })
	if i < 0 {
		t.Fatal(name)
	}
	return cputest.CPUs[i]
}

// The tier that each known CPU uses does not change by accident.
func TestKnownCPUs(t *testing.T) {
	for _, c := range cputest.CPUs {
		if got := c.Features.Best(); got != c.Tier {
			t.Errorf("%s uses %v, want %v", c.Name, got, c.Tier)
		}
	}
}

// A tier without a row uses that of the best tier it includes.
func TestTable(t *testing.T) {
	table := cpu.Table[int]{cpu.Generic: 0, cpu.AVX2: 1, cpu.AVX512BF16: 2}
	for tier, want := range map[cpu.Tier]int{
		cpu.Generic: 0, cpu.AVX2: 1, cpu.AVX512: 1, cpu.AVX512BF16: 2, cpu.AMX: 1,
	} {
		if got := table.Kernels(tier); got != want {
			t.Errorf("%v uses row %d, want %d", tier, got, want)
		}
	}
}

// SPMOE_NEED_TIERS names tiers, and this CPU has them.
func TestNeededTiers(t *testing.T) {
	for _, name := range strings.Fields(os.Getenv(cputest.NeedVar)) {
		if !slices.Contains(cpu.All(), cpu.Tier(name)) {
			t.Errorf("%s: %s is not a tier: use names from %v", cputest.NeedVar, name, cpu.All())
		}
	}
	for _, tier := range cpu.All() {
		t.Run(tier.String(), func(t *testing.T) { cputest.Need(t, tier) })
	}
}
