//go:build amd64 && !purego

package gemm

// Turned products of codes: panels of 16 rows are decoded while the one before is multiplied.

import "unsafe"

const (
	codesRun   = 256                     // codes of a row, at most, in a call: two panels and as much of the column panel stay in the first level of cache
	codesPanel = 2 * tileRows * codesRun // bytes of 16 decoded rows
	codesBytes = 128 << 10               // of b, about, that are fetched while as many are multiplied
	leastCodes = 64                      // rows of b in a call, if there are as many
	mostCodes  = 256                     // and most: their sums stay in the second level of cache
)

// turnedCodes computes c for a b of codes, with a column panel of that width. It leaves notes.
func (f *family) turnedCodes(s *Scratch, p *product, c result, b operand, width int) {
	rows := min(max(codesBytes/b.Cols/tileRows*tileRows, leastCodes), mostCodes)
	sums := s.turnedSums(rows, f.columns)
	panels := s.a.atLeast(2*codesPanel + 2*line)
	panels = unsafe.Add(panels, -int(uintptr(panels))&(2*line-1))
	multiply := f.tallCodes[width/tileRows-1]
	d, t := &s.calls.decoding, &s.calls.tile
	d.reset()
	for j := 0; j < b.Rows; j += rows {
		n := min(rows, b.Rows-j)
		for k := 0; k < b.Cols; k += codesRun {
			run := min(codesRun, b.Cols-k)
			d.along(b.part(1, j, n).along(1, k, run))
			d.ahead = n*b.RowStride - k + n*k // of the next rows' memory, as much as was multiplied of these
			*t = tile{a: panels, aStride: codesPanel, b: unsafe.Add(p.b, 4*width*f.packing.steps(k)), sum: sums.Ptr,
				steps: f.packing.steps(run) / tileSteps, count: n, startAtSum: min(k, 1)}
			callTallCodes(multiply, d, t)
		}
		c.turn(j, sums.slice(4, 0, 0, n, f.columns))
	}
}

// callTallCodes is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func callTallCodes(multiply func(*decoding, *tile), d *decoding, t *tile) { multiply(d, t) }
