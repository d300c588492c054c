//go:build amd64 && !purego

package gemm

// MXINT8 on AMX: the same block sums as with VPDPBUSD, in the same order.

import (
	"encoding/binary"

	"spmoe/tensor/format"
)

var int8AMX = microkernel{
	rows: tileRows, columns: 32, runSteps: 64 * recordSteps, allPanels: int8AMXTiles, configure: (*tile).configureInt8, scratchBytes: tileRoom,
	packing: packing{elem: 1, records: &byteRecords, tiles: true},
}

// tileRoom is the size in bytes of the integer sums of the blocks in flight.
const tileRoom = 4 * 16 * 64

// configureInt8 configures the tiles for two alternating blocks: 0 and 1 for integer sums, 2 and 3
// for rows of a, 4 and 5 for columns of b. One configuration is for whole row panels, or for the
// only one. The other is for the rows left after the whole panels.
func (t *tile) configureInt8() {
	t.config[0].setInt8(min(t.count, tileRows))
	t.config[1].setInt8(max(t.count%tileRows, 1))
}

func (c *tileConfig) setInt8(rows int) {
	*c = tileConfig{1}
	const codes = format.MXBlock
	for i, shape := range [6]struct{ rows, bytes int }{{rows, 64}, {rows, 64}, {rows, codes}, {rows, codes}, {codes / 4, 64}, {codes / 4, 64}} {
		binary.LittleEndian.PutUint16(c[16+2*i:], uint16(shape.bytes))
		c[48+i] = byte(shape.rows)
	}
}
