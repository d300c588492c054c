package gemm

// The microkernel of a packed product and what it requires of its operands.

// microkernel multiplies packed panels, which packing describes.
type microkernel struct {
	rows, columns int           // of a tile
	tiles         []func(*tile) // indexed by the rows of a panel
	// If not nil, it is used instead: it multiplies all row panels, tile.count rows in total.
	allPanels func(*tile)
	// allPanels that stores complete sums of whole tiles as BF16; may be nil.
	allPanelsRounded func(*tile)
	// allPanels that stores complete sums of whole tiles past the caches; may be nil.
	allPanelsStreamed func(*tile)
	configure         func(*tile) // sets the tile configuration for the rows
	scratchBytes      int         // bytes of scratch that the microkernel needs at tile.out
	// The microkernel respects tile.columns; otherwise it writes whole tiles.
	masked     bool
	rounds     bool // the microkernel can store BF16
	adds       bool // the microkernel can add pending sums of a tree
	scales     bool // the microkernel can scale the sums of a run before it adds pending sums
	runSteps   int  // steps between a load and a store of the sums
	innerSteps int  // the same within a call of column, whose column panel stays in L1; 0: all steps
	packing    packing
	transposed *transposedKernels // for few rows of a and a b contiguous along k; may be nil
}
