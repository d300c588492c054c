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

// Row panels for tiles follow their definition: for every 32 elements of k, those of each row are
// adjacent, with zeros as padding.
func TestTilesAcross(t *testing.T) {
	cputest.Need(t, cpu.AVX512BF16)
	r := rand.New(rand.NewPCG(13, 14))
	for _, k := range []int{1, 2, 31, 32, 33, 64, 95, 130} {
		for _, rows := range []int{1, 7, 15, 16} {
			a := newMatrix[uint16](rows, k, true, nan16).fill(func() uint16 { return uint16(r.Uint32()) })
			var s Scratch
			steps := bf16AMX.packing.steps(k)
			to := unsafe.Slice((*uint16)(s.a.atLeast(4*steps*tileRows)), 2*steps*tileRows)
			for i := range to {
				to[i] = nan16
			}
			tilesAcross(unsafe.Pointer(&to[0]), a.Ptr, 2*a.ColStride, k, 64, 1<<rows-1)
			for i := range tileRows {
				for j := range 2 * steps {
					want := uint16(0)
					if i < rows && j < k {
						want = *at[uint16](a.View, i, j)
					}
					if got := to[j/tileElements*tileRows*tileElements+i*tileElements+j%tileElements]; got != want {
						t.Fatalf("%d rows, k %d: element %d of row %d is %#x, want %#x", rows, k, j, i, got, want)
					}
				}
			}
		}
	}
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
