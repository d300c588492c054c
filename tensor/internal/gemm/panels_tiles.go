package gemm

// Panels for registers that hold whole tiles (AMX), which multiply 16 rows by 16 columns, 32
// elements along k at once.

const (
	tileSteps    = 16 // steps, pairs of k, of a tile
	tileElements = 2 * tileSteps
	tileRows     = 16
)

// tileConfig is what LDTILECFG reads: how many rows each tile has, and bytes each row. Tiles 0 to 3
// are the sums, 4 and 5 rows of a, 6 and 7 columns of b.
type tileConfig [64]byte

// tiled is what a microkernel of tiles reads.
type tiled struct {
	rowStep  int // bytes from row to row of a row panel
	tileStep int // and from one tile along k to the next
	ahead    int // bytes from what is multiplied to what is fetched, if it is
	config   [2]tileConfig
}
