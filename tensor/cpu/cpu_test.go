package cpu

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	all := []Tier{Generic, AVX2, AVX512, AVX512BF16}
	tests := []struct {
		env     string
		have    []Tier
		want    Tier
		problem string
	}{
		{"", all, AVX512BF16, ""},
		{"", all[:2], AVX2, ""},
		{"generic", all, Generic, ""},
		{"AVX2", all, AVX2, ""},
		{"avx512", all, AVX512, ""},
		{"avx512", all[:2], AVX2, "SPMOE_CPU=avx512 is a tier this CPU or build does not have: unset it or use generic, avx2"},
		{"sse9", all, AVX512BF16, "SPMOE_CPU=sse9 is not a tier: unset it or use generic, avx2, avx512, avx512bf16"},
	}
	for _, tt := range tests {
		got, err := choose(tt.env, tt.have)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got != tt.want || message != tt.problem {
			t.Errorf("choose(%q, %v) = %v, %q; want %v, %q", tt.env, tt.have, got, message, tt.want, tt.problem)
		}
	}
}

func TestTiersAscendFromGeneric(t *testing.T) {
	have := Tiers()
	if have[0] != Generic || !slices.IsSorted(have) || !slices.Contains(have, Best()) {
		t.Errorf("Tiers() = %v, Best() = %v", have, Best())
	}
	if Model() == "" || strings.HasPrefix(Best().String(), "Tier(") {
		t.Errorf("Model() = %q, Best() = %v", Model(), Best())
	}
}
