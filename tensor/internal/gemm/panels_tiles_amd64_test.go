//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
)

// needsAMX skips a test if this CPU lacks AMX.
func needsAMX(t *testing.T) {
	t.Helper()
	cputest.Need(t, cpu.AMX)
}

// Rows of a that tiles can read in place give the bits of the same rows packed. Nothing next to
// them is read.
func TestTilesInPlace(t *testing.T) {
	needsAMX(t)
	ks := table[cpu.AMX]
	r := rand.New(rand.NewPCG(15, 16))
	for _, shape := range []struct{ m, n, k int }{{9, 40, 32}, {16, 32, 64}, {17, 33, 96}, {40, 70, 2080}, {401, 33, 32}, {64, 1100, 128}} {
		t.Run(fmt.Sprintf("%dx%dx%d", shape.m, shape.n, shape.k), func(t *testing.T) {
			m, n, k := shape.m, shape.n, shape.k
			a, b := operands[uint16](r, m, n, k, false, true)
			stride := k + tileElements
			memory := make([]uint16, (m+1)*stride+line)
			for i := range memory {
				memory[i] = nan16
			}
			lies := strided(unsafe.Add(unsafe.Pointer(&memory[line/2]), -int(uintptr(unsafe.Pointer(&memory[line/2])))&(line-1)), m, k, stride, 1)
			for i := range m {
				copy(row[uint16](lies, i), row[uint16](a.View, i))
			}
			packing := &bf16AMX.packing
			if _, ok := packing.panelsInPlace(operand{View: lies}, tileRows); !ok {
				t.Fatal("aligned rows are packed")
			}
			if _, ok := packing.panelsInPlace(operand{View: a.View}, tileRows); ok {
				t.Fatal("rows at any place are not packed")
			}
			var s Scratch
			start := results(r, m, n)
			for _, how := range []mode{{}, {add: true}, {add: true, span: 32}, {add: true, span: 64}} {
				got, want := start.clone(), start.clone()
				ks.bf16(&s, got.View, lies, b.View, how)
				ks.bf16(&s, want.View, a.View, b.View, how)
				checkSame(t, got.elements(t), want.elements(t))
			}
			got, want := newMatrix[uint16](m, n, false, 7), newMatrix[uint16](m, n, false, 7)
			ks.bf16Rounded(&s, got.View, lies, b.View, mode{})
			ks.bf16Rounded(&s, want.View, a.View, b.View, mode{})
			checkSame(t, got.elements(t), want.elements(t))
		})
	}
}
