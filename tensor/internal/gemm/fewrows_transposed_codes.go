package gemm

// Transposed products of codes. Chunks of blocks of rows are decoded while the previous chunk is
// multiplied.

import (
	"math/bits"
	"unsafe"
)

const (
	// Largest number of codes of a row per call: their scales fill one vector.
	codesRun   = 512
	codesRows  = 32                 // rows of a block
	codesChunk = 2 * 64 * codesRows // bytes of 64 codes of all rows, decoded
	codesLeast = 8                  // columns of a column panel: 8, 16 or 32
	// Approximate bytes of b per call; the same number is prefetched.
	codesBytes = 128 << 10
	leastCodes = 64  // fewest rows of b per call, if there are enough
	mostCodes  = 256 // most rows of b per call: their sums stay in L2
)

// codesWidth returns the columns of the column panel for rows rows of a. It is as narrow as
// possible, since L1 must hold the panel.
func codesWidth(rows int) int {
	return codesLeast << bits.Len(uint(rows-1)/codesLeast)
}

// transposedCodes computes c for a b of codes, with a column panel of width columns. It leaves
// notes.
func (f *microkernel) transposedCodes(s *Scratch, p *product, c result, b operand, width int) {
	rows := min(max(codesBytes/b.Cols/leastCodes, 1)*leastCodes, mostCodes)
	sums := s.transposedSums(rows, f.columns)
	chunks := s.a.atLeast(2*2*codesChunk + line*codesRows)
	chunks = unsafe.Add(chunks, -int(uintptr(chunks))&(2*codesChunk-1))
	multiply := f.transposed.codes[bits.Len(uint(width/codesLeast))-1]
	most := codesRun / max(width/tileRows, 1) // as large a part of the column panel as caches hold
	d, t := &s.calls.decoding, &s.calls.tile
	d.reset()
	for j := 0; j < b.Rows; j += rows {
		n := min(rows, b.Rows-j)
		for k := 0; k < b.Cols; k += most {
			run := min(most, b.Cols-k)
			d.along(b.part(1, j, n).along(1, k, run))
			// Prefetch the next rows, the same number of bytes as are multiplied now.
			d.ahead = n*b.RowStride - k + n*k
			*t = tile{a: chunks, aStride: n * run / 4 / line * line, out: unsafe.Add(chunks, 2*codesChunk), b: unsafe.Add(p.b, 4*width*f.packing.steps(k)), sum: sums.Ptr,
				steps: f.packing.steps(run) / tileSteps, count: n, startAtSum: min(k, 1)}
			callTallCodes(multiply, d, t)
		}
		f.transpose(c, j, sums.slice(4, 0, 0, n, f.columns))
	}
}

// callTallCodes is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func callTallCodes(multiply func(*decoding, *tile), d *decoding, t *tile) { multiply(d, t) }
