package gemm

// Panels for registers that hold whole tiles (AMX). An instruction multiplies 16 rows by 16 columns
// over 32 elements of k.

const (
	tileSteps    = 16 // steps (pairs of k) per tile
	tileElements = 2 * tileSteps
	tileRows     = 16
	tileRoom     = 4 * tileRows * 64 // bytes of the sums of 32 rows by 32 columns
)

// tileConfig is the operand of LDTILECFG: the rows of each tile and the bytes of each row. Tiles 0
// to 3 are the sums, 4 and 5 rows of a, 6 and 7 columns of b.
type tileConfig [64]byte

// tiled holds the arguments of a microkernel for tiles.
type tiled struct {
	furtherPanels int // column panels after the first
	bStride       int // bytes between column panels
	rows          int // of a, as tile.count at first

	rowStep  int // bytes between rows of a row panel
	tileStep int // bytes from one tile to the next along k
	ahead    int // bytes from the multiplied to the prefetched data; 0: no prefetch
	config   tileConfig
}
