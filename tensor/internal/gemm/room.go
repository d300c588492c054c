package gemm

import (
	"math"
	"math/bits"
)

// Room is the size of a Scratch that has computed some products of BF16 or FP32 matrices with the
// blocked kernels. Sizes are float64, so that those of impossible shapes do not overflow.
type Room struct {
	rows           [retainedBlocks]float64
	columns        float64
	sums, partials float64
}

// Add counts a product of [m, k] and [k, n] with elements of elem bytes. leaves is the number of
// spans of k whose sums form a tree; 1 if there is no tree.
func (r *Room) Add(m, n, k float64, elem, leaves int) { r.add(m, n, k, elem, leaves, active.tiles) }

// add is Add for a tier with tiles or without.
func (r *Room) add(m, n, k float64, elem, leaves int, tiles bool) {
	if m < 1 || n < 1 || k < 1 {
		return
	}
	const widest = 32               // columns of a panel
	step := 4 * k / float64(4/elem) // bytes of a packed row or column
	bytes, most, run := blockBytes, blockRows, runSteps
	if tiles {
		bytes, most, run = tilesBlockBytes, tilesRows(int(min(step/4, tilesRunSteps))), tilesRunSteps
	}
	limit := max(math.Floor(float64(bytes)/step), widest)
	columns := min(limit, max(math.Floor(packedBytes/step), leastColumns), blockColumns, n)
	rows := min(limit, float64(most), m)
	r.columns = max(r.columns, columns*step)
	blocks := math.Ceil(m / rows)
	if blocks > retainedBlocks {
		blocks = 1
	}
	for i := range int(blocks) {
		r.rows[i] = max(r.rows[i], rows*step)
	}
	if step/4 > float64(run) {
		r.sums = max(r.sums, 4*rows*columns)
	}
	if leaves > 1 {
		r.partials = max(r.partials, 4*rows*columns*float64(bits.Len(uint(leaves))+1))
	}
}

// Bytes returns the sum.
func (r *Room) Bytes() float64 {
	sum := r.columns + r.sums + r.partials
	for _, n := range r.rows {
		sum += n
	}
	return sum
}
