//go:build !purego

package gemm

import (
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// The kernels for known CPUs, which determine bits and speed, do not change by accident.
func TestKernelsOfKnownCPUs(t *testing.T) {
	type products struct{ bf16, integers *microkernel }
	expected := map[string]products{
		"Cortex-A72": {},
		"Graviton2":  {&bf16SplitNEON, &int8SDOT},
		"Apple M1":   {&bf16SplitNEON, &int8SDOT},
		"Graviton4":  {&bf16NEON, &int8SMMLA},
	}
	for _, c := range cputest.CPUs {
		var got products
		if row := table.Row(c.Features.Best()); row != cpu.Generic {
			got = products{recipes[row].bf16, recipes[row].integers}
		}
		if got != expected[c.Name] {
			t.Errorf("%s multiplies BF16 and MXINT8 by %p, want %p", c.Name, got, expected[c.Name])
		}
	}
}
