package gemm

// The loops around microkernels, which are the same on every architecture, with a microkernel and
// packers in plain Go.

import (
	"math/bits"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// plainMicrokernel multiplies tiles of 3 by 4, in runs of 8 steps.
var plainMicrokernel = microkernel{
	rows: 3, columns: 4, masked: true, runSteps: 8,
	tiles:   []func(*tile){nil, plainTiles(1), plainTiles(2), plainTiles(3)},
	packing: packing{elem: 2, rows: packer{1, plainAlong, plainAcross}, columns: packer{1, plainAlong, plainAcross}},
}

// plainTiles multiplies panels of rows rows by the definition of tile.
func plainTiles(rows int) func(*tile) {
	return func(t *tile) {
		pair := func(panel unsafe.Pointer, i, width, step int) *[2]uint16 {
			return (*[2]uint16)(unsafe.Add(panel, 4*(step*width+i)))
		}
		for panel := range t.count {
			for i := range rows {
				for j := range bits.Len(uint(t.columns)) {
					c := (*float32)(unsafe.Add(t.sum, (panel*rows+i)*t.sumStride+4*j))
					sum := initial(*c, t.startAtSum != 0)
					for step := range t.steps {
						x, y := pair(unsafe.Add(t.a, panel*t.aStride), i, rows, step), pair(t.b, j, 4, step)
						sum += wideBF16(x[1]) * wideBF16(y[1])
						sum += wideBF16(x[0]) * wideBF16(y[0])
					}
					*c = sum
				}
			}
		}
	}
}

// plainAlong is packer.along for one row.
func plainAlong(dst, src unsafe.Pointer, offsets *[16]int, words, _, step, _ int) {
	row := unsafe.Slice((*uint16)(unsafe.Add(src, offsets[0])), words)
	for k := 0; k < words; k += 2 {
		var pair [2]uint16
		copy(pair[:], row[k:])
		*(*[2]uint16)(unsafe.Add(dst, k/2*step)) = pair
	}
}

// plainAcross is packer.across.
func plainAcross(dst, src unsafe.Pointer, stride, k, step, lanes int) {
	for i := range bits.Len(uint(lanes)) {
		for l := 0; l < k; l += 2 {
			pair := [2]uint16{*(*uint16)(unsafe.Add(src, l*stride+2*i))}
			if l+1 < k {
				pair[1] = *(*uint16)(unsafe.Add(src, (l+1)*stride+2*i))
			}
			*(*[2]uint16)(unsafe.Add(dst, l/2*step+4*i)) = pair
		}
	}
}

// Any microkernel gives the order of panels on any architecture: sums, sums added to others,
// rounded ones and spans.
func TestPanelsAreNeutral(t *testing.T) {
	var s Scratch
	f := &plainMicrokernel
	eachShape(t, func(t *testing.T, r *rand.Rand, m, n, k int, aT, bT bool) {
		x, y := operands[uint16](r, m, n, k, aT, bT)
		a, b, start := operand{View: x.View}, operand{View: y.transposed()}, results(r, m, n)
		for _, accumulate := range []bool{false, true} {
			s.poison()
			got, want := start.clone(), start.clone()
			for i := range m {
				for j := range n {
					c := at[float32](want.View, i, j)
					*c = chain(x.View, y.View, i, j, initial(*c, accumulate))
				}
			}
			f.multiply(&s, got.View, View{}, a, b, mode{add: accumulate}, nil)
			checkSame(t, got.elements(t), want.elements(t))
		}
		rounded, sums := newMatrix[uint16](m, n, false, 7), newMatrix[float32](m, n, false, guard)
		f.multiply(&s, View{}, rounded.View, a, b, mode{}, nil)
		f.multiply(&s, sums.View, View{}, a, b, mode{}, nil)
		out := rounded.elements(t)
		for i, sum := range sums.elements(t) {
			if out[i] != roundBF16(sum) {
				t.Fatalf("element %d, %d is %#x, want %#x", i/n, i%n, out[i], roundBF16(sum))
			}
		}
		const span = 6
		checkSpans(t, start, k, span,
			func(c View, how mode) { f.multiply(&s, c, View{}, a, b, how, nil) },
			func(c View, k, n int) {
				f.multiply(&s, c, View{}, a.part(2, 0, m).along(2, k, n), b.along(2, k, n), mode{}, nil)
			})
	})
}
