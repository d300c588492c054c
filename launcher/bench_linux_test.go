package main

import (
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/measuring"
	"spmoe/tensor/cpu"
)

// TestLowerTier: a child process measures in the tier it is given.
func TestLowerTier(t *testing.T) {
	t.Setenv(asLauncher, "")
	kernels := measuring.LowerTiers()
	if has := slices.Contains(cpu.Tiers(), cpu.AVX2) && cpu.Best() != cpu.Generic && cpu.Best() != cpu.AVX2; has != (len(kernels) > 0) {
		t.Fatalf("tier %v, and %d kernels are measured in lower ones", cpu.Best(), len(kernels))
	}
	for _, k := range kernels {
		r, err := k.Measure(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != "avx2_bf16_gemm" || r.Shape != "1024x1024x1024" || !(r.Value > 0 && r.Share > 0) {
			t.Errorf("%+v", r)
		}
	}
	if len(kernels) > 0 {
		if _, err := (measuring.TierKernel{Tier: cpu.Tier("sse9"), Name: "bf16_gemm", Shape: "1x1x1"}).Measure(t.Context(), true); err == nil || !strings.Contains(err.Error(), cpu.EnvVar) {
			t.Errorf("a tier that is none gives the error %v", err)
		}
	}
}
