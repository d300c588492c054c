package gemm

// What a microkernel wants of its operands.

// family is a microkernel with the packing that it needs.
type family struct {
	rows, columns int           // of a tile
	tiles         []func(*tile) // by the rows of a panel
	stack         func(*tile)   // or, if not nil, for all row panels, tile.count rows in all
	stackRounded  func(*tile)   // stack that stores BF16: whole sums, of whole tiles; may be nil
	stackStreamed func(*tile)   // stack that stores whole sums, of whole tiles, past the caches; may be nil
	configure     func(*tile)   // what stack needs to know of the rows
	room          int           // bytes that the microkernel takes at tile.out for itself
	masked        bool          // the microkernel keeps to tile.columns; otherwise it writes whole tiles
	rounds        bool          // the microkernel can store BF16
	adds          bool          // the microkernel can add pending sums of a tree
	runSteps      int           // steps between a load and a store of the sums
	packing       packing
	across        *acrossFamilies // for few rows of a and a b whose rows are neighbours; may be nil
	turned        *turnedFamily   // for few rows of a and a b whose rows lie along k; may be nil
}
