package cputest

import (
	"fmt"
	"slices"
	"testing"

	"spmoe/tensor/cpu"
)

// outcome is a test that notes how it ended.
type outcome struct {
	testing.TB
	end string
}

func (o *outcome) Helper()          {}
func (o *outcome) Skip(args ...any) { o.end = "skipped: " + fmt.Sprint(args...) }
func (o *outcome) Fatalf(format string, args ...any) {
	o.end = "failed: " + fmt.Sprintf(format, args...)
}

func TestNeed(t *testing.T) {
	tests := []struct {
		tier   cpu.Tier
		needed string
		want   string
	}{
		{cpu.Generic, "", ""},
		{cpu.AVX2, "avx2", ""},
		{cpu.AVX512, "", "skipped: tier avx512 is not tested: this CPU or build has no AVX512VBMI, GFNI"},
		{cpu.AVX512, "avx2 avx512bf16", "skipped: tier avx512 is not tested: this CPU or build has no AVX512VBMI, GFNI"},
		{cpu.AVX512, "avx2 avx512", `failed: tier avx512 is not tested: this CPU or build has no AVX512VBMI, GFNI, and SPMOE_NEED_TIERS is "avx2 avx512"`},
	}
	for _, tt := range tests {
		o := &outcome{TB: t}
		need(o, tt.tier, skylake, tt.needed)
		if o.end != tt.want {
			t.Errorf("%v on Skylake-X with %q: %q, want %q", tt.tier, tt.needed, o.end, tt.want)
		}
	}
}

// Each runs the rows that this CPU has, each with its own kernels, and skips the others.
func TestEach(t *testing.T) {
	t.Setenv(NeedVar, "")
	table := cpu.Table[cpu.Tier]{cpu.AMX: cpu.AMX, cpu.Generic: cpu.Generic, cpu.AVX2: cpu.AVX2}
	var ran []cpu.Tier
	Each(t, table, func(t *testing.T, tier cpu.Tier) { ran = append(ran, tier) })
	var want []cpu.Tier
	for _, tier := range []cpu.Tier{cpu.Generic, cpu.AVX2, cpu.AMX} {
		if slices.Contains(cpu.Tiers(), tier) {
			want = append(want, tier)
		}
	}
	if fmt.Sprint(ran) != fmt.Sprint(want) {
		t.Errorf("rows %v ran, want %v", ran, want)
	}
}
