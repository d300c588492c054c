//go:build !purego

package gemm

import (
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// The kernels for known CPUs, which determine bits and speed, do not change by accident.
func TestKernelsOfKnownCPUs(t *testing.T) {
	expected := map[string]*microkernel{
		"Apple M1":  &bf16SplitNEON,
		"Graviton4": &bf16NEON,
	}
	for _, c := range cputest.CPUs {
		var got *microkernel
		if row := table.Row(c.Features.Best()); row != cpu.Generic {
			got = recipes[row].bf16
		}
		if got != expected[c.Name] {
			t.Errorf("%s multiplies BF16 by %p, want %p", c.Name, got, expected[c.Name])
		}
	}
}
