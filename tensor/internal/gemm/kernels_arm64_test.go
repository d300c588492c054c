//go:build !purego

package gemm

import (
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// The kernels for known CPUs, which determine bits and speed, do not change by accident.
func TestKernelsOfKnownCPUs(t *testing.T) {
	expected := map[string]*microkernel{"Graviton2": &bf16SplitNEON, "Apple M1": &bf16SplitNEON, "Graviton4": &bf16NEON}
	for _, c := range cputest.CPUs {
		var got *microkernel
		if row := table.Row(c.Features.Best()); row != cpu.Generic {
			got = recipes[row].bf16
			if few := recipes[row].few; !few(16, 1) || few(17, 1<<20) {
				t.Errorf("%s: few rows are not those of AVX2, 16", c.Name)
			}
		}
		if got != expected[c.Name] {
			t.Errorf("%s multiplies BF16 by %p, want %p", c.Name, got, expected[c.Name])
		}
	}
}
