//go:build amd64 && !purego

package gemm

import (
	"reflect"
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// The kernels for known CPUs, which determine bits and speed, do not change by accident.
func TestKernelsOfKnownCPUs(t *testing.T) {
	type choice struct {
		bf16, fp32 *microkernel
		direct     *directKernels
		decoders   uintptr // see address
	}
	var (
		avx2     = choice{&bf16SplitAVX2, &fp32AVX2, &directAVX2, address(decodersAVX2)}
		iceLake  = choice{&bf16SplitAVX512, &fp32AVX512, &directAVX2, address(decodersAVX2)}
		zen5     = choice{&bf16AVX512, &fp32AVX512, nil, address(decodersAVX512)}
		withAMX  = choice{&bf16AMX, &fp32AVX512, nil, address(decodersAVX512)}
		expected = map[string]choice{
			"Sandy Bridge": {}, "Haswell": avx2, "Alder Lake": avx2, "Skylake-X": avx2, "Cannon Lake": avx2, "Cooper Lake": avx2,
			"Ice Lake": iceLake, "Sapphire Rapids without permission for tiles": iceLake, "Sapphire Rapids": withAMX, "Granite Rapids": withAMX,
			"Zen 3": avx2, "Zen 5": zen5,
			"Apple M1": {}, "Graviton4": {}, // no kernels on amd64
		}
	)
	for _, c := range cputest.CPUs {
		want, ok := expected[c.Name]
		if !ok {
			t.Errorf("what %s should use is not said", c.Name)
		}
		var got choice
		if row := table.Row(c.Features.Best()); row != cpu.Generic {
			r := recipes[row]
			got = choice{r.bf16, r.fp32, r.direct, address(r.decoders)}
		}
		if got != want {
			t.Errorf("%s uses %+v, want %+v", c.Name, got, want)
		}
	}
}

// address distinguishes maps.
func address(d decoders) uintptr { return reflect.ValueOf(d).Pointer() }
