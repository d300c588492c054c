//go:build amd64 && !purego

package gemm

// Products on AMX, the tile registers of Intel's CPUs from Sapphire Rapids on.
//
// Order of summation (Intel SDM, TDPBF16PS): for every 32 elements of k, one chain of fused
// multiply-adds takes the even elements and another the odd ones. Each starts at zero. Then their
// sum is added to the element. Subnormals are read as zero and flushed.

import (
	"encoding/binary"
	"unsafe"
)

var bf16AMX = microkernel{
	rows: tileRows, columns: 32, runSteps: tilesRunSteps, innerSteps: tilesInnerSteps,
	allPanels: bf16AMXTiles, allPanelsRounded: bf16AMXRoundedTiles, allPanelsStreamed: bf16AMXStreamedTiles, configure: (*tile).configureBF16, scratchBytes: tileRoom,
	transposed: &transposedKernels{tall: bf16AMXTall, codes: [3]func(*decoding, *tile){codesAMXTall8, codesAMXTall16, codesAMXTall32},
		sums: turnSumsAVX512, rounded: turnRoundedSumsAVX512},
	packing: packing{elem: 2, tiles: true,
		rows:    packer{16, tilesAlong, tilesAcross},
		columns: packer{16, tileColumnsAlong, tileColumnsAcross}},
}

// configureBF16 configures the tiles for the rows left after pairs of whole panels.
func (t *tile) configureBF16() { t.config.setBF16(t.count % (2 * tileRows)) }

// setBF16 configures the tiles for rows (0 to 32) rows of a.
func (c *tileConfig) setBF16(rows int) {
	first := max(min(rows, tileRows), 1) // a tile that stays unused must still have a row
	second := max(rows-first, 1)
	c.set([8]int{first, first, second, second, first, second, tileSteps, tileSteps})
}

// set configures each tile for its rows.
func (c *tileConfig) set(rows [8]int) {
	*c = tileConfig{1}
	for i, n := range rows {
		binary.LittleEndian.PutUint16(c[16+2*i:], 64)
		c[48+i] = byte(n)
	}
}

// tilesAlong packs rows of a that are contiguous along k.
func tilesAlong(dst, src unsafe.Pointer, offsets *[16]int, words, tail, _, _ int) {
	tileRowsAVX512(dst, src, offsets, words, tail)
}

// tileOffsets holds the offsets within a tile at which the steps of a panel of 16 rows begin.
var tileOffsets = func() (o [16]int) {
	for i := range o {
		o[i] = 64 * i
	}
	return o
}()

// tilesAcross packs rows of a that are adjacent in memory. A remainder that does not fill a tile is
// first packed as steps, which are then transposed.
func tilesAcross(dst, src unsafe.Pointer, stride, k, _, lanes int) {
	whole := k / tileElements
	if whole > 0 {
		tilesAcrossAVX512(dst, src, stride, whole, lanes)
	}
	if k %= tileElements; k > 0 { // only then does src extend past the whole tiles
		last := unsafe.Add(dst, whole*32*tileElements)
		interleave16AVX512(last, unsafe.Add(src, whole*tileElements*stride), stride, k, 64, lanes)
		clearSteps(last, 64, k, 64)
		packRowsAVX512(last, last, &tileOffsets, 32, 0, 64, 0)
	}
}

func tileColumnsAlong(dst, src unsafe.Pointer, offsets *[16]int, words, tail, step, ahead int) {
	packRowsAVX512(dst, src, offsets, words, tail, step, ahead)
	clearSteps(dst, step, words, 64)
}

func tileColumnsAcross(dst, src unsafe.Pointer, stride, k, step, lanes int) {
	interleave32AVX512(dst, src, stride, k, step, lanes)
	clearSteps(dst, step, k, 128)
}

// clearSteps zeroes width bytes of each step, from the step after k elements to the end of their
// tile.
func clearSteps(dst unsafe.Pointer, step, k, width int) {
	for i := (k + 1) / 2; i%tileSteps != 0; i++ {
		clear(unsafe.Slice((*byte)(unsafe.Add(dst, i*step)), width))
	}
}

// peakBF16AMX runs a tenth of the rounds. Each takes a core some 64 cycles.
func peakBF16AMX(rounds int) float64 {
	rounds = (rounds + 9) / 10
	bf16AMXPeak(rounds)
	return float64(rounds) * 4 * tileRows * 16 * tileElements * 2
}
