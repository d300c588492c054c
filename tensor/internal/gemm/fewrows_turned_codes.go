package gemm

// Turned products of codes: chunks of blocks of rows are decoded while the one before is
// multiplied.

import (
	"math/bits"
	"unsafe"
)

const (
	codesRun   = 512                // codes of a row, at most, in a call: as many as have their scales in one vector
	codesRows  = 32                 // of a block
	codesChunk = 2 * 64 * codesRows // bytes of 64 codes of all rows, decoded
	codesLeast = 8                  // columns of a column panel: 8, 16 or 32
	codesBytes = 128 << 10          // of b, about, that are fetched while as many are multiplied
	leastCodes = 64                 // rows of b in a call, if there are as many
	mostCodes  = 256                // and most: their sums stay in the second level of cache
)

// codesWidth is the columns of the column panel for that many rows of a: as few as will do, since
// the first level of cache holds it.
func codesWidth(rows int) int {
	return codesLeast << bits.Len(uint(rows-1)/codesLeast)
}

// turnedCodes computes c for a b of codes, with a column panel of that width. It leaves notes.
func (f *family) turnedCodes(s *Scratch, p *product, c result, b operand, width int) {
	rows := min(max(codesBytes/b.Cols/leastCodes, 1)*leastCodes, mostCodes)
	sums := s.turnedSums(rows, f.columns)
	chunks := s.a.atLeast(2*2*codesChunk + line*codesRows)
	chunks = unsafe.Add(chunks, -int(uintptr(chunks))&(2*codesChunk-1))
	multiply := f.turned.codes[bits.Len(uint(width/codesLeast))-1]
	most := codesRun / max(width/tileRows, 1) // as large a part of the column panel as caches hold
	d, t := &s.calls.decoding, &s.calls.tile
	d.reset()
	for j := 0; j < b.Rows; j += rows {
		n := min(rows, b.Rows-j)
		for k := 0; k < b.Cols; k += most {
			run := min(most, b.Cols-k)
			d.along(b.part(1, j, n).along(1, k, run))
			d.ahead = n*b.RowStride - k + n*k // of the next rows' memory, as much as was multiplied of these
			*t = tile{a: chunks, aStride: n * run / 4 / line * line, out: unsafe.Add(chunks, 2*codesChunk), b: unsafe.Add(p.b, 4*width*f.packing.steps(k)), sum: sums.Ptr,
				steps: f.packing.steps(run) / tileSteps, count: n, startAtSum: min(k, 1)}
			callTallCodes(multiply, d, t)
		}
		f.turn(c, j, sums.slice(4, 0, 0, n, f.columns))
	}
}

// callTallCodes is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func callTallCodes(multiply func(*decoding, *tile), d *decoding, t *tile) { multiply(d, t) }
