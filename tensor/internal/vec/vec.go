// Package vec holds the row kernels of package tensor: loops over float32 and bfloat16 slices.
//
// A kernel whose name ends in BF16 reads and writes bfloat16 where the one without computes on
// float32: its results have the bits that widening, that kernel and rounding would give, in one
// pass over memory.
//
// All slices of a call have the same length unless a comment says otherwise, any length and
// alignment. A destination may be the very same slice as an input; slices that overlap otherwise
// are not allowed.
//
// Every tier gives the same bits (which NaN aside): products are rounded before they are added
// (but in Exp), which the conversions float32(a*b) force on compilers that would fuse the two, and
// sums follow one fixed split into lanes.
package vec

//go:generate go run ./asm

// chunk is the most elements that one kernel call gets. Assembly cannot be preempted, so a longer
// slice is worked off in calls of the exported function to itself: each enters through a stack
// check, where the garbage collector can stop it. At 10 GB/s AdamW, which moves the most bytes an
// element, takes under 50 microseconds for a chunk.
const chunk = 16 << 10

// Widen sets dst to the exact values of the bfloat16 numbers in src.
func Widen(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for len(src) > chunk {
		Widen(dst[:chunk], src[:chunk])
		dst, src = dst[chunk:], src[chunk:]
	}
	active.widen(dst, src)
}

// Round sets dst to src rounded to bfloat16, to nearest with ties to even; subnormals are kept, a
// NaN becomes quiet.
func Round(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for len(src) > chunk {
		Round(dst[:chunk], src[:chunk])
		dst, src = dst[chunk:], src[chunk:]
	}
	active.round(dst, src)
}

// Add sets dst[i] = x[i] + y[i].
func Add(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for len(dst) > chunk {
		Add(dst[:chunk], x[:chunk], y[:chunk])
		dst, x, y = dst[chunk:], x[chunk:], y[chunk:]
	}
	active.add(dst, x, y)
}

// AddScaled sets dst[i] += a·x[i].
func AddScaled(dst []float32, a float32, x []float32) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		AddScaled(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.addScaled(dst, a, x)
}

// Scale sets dst[i] = a·x[i].
func Scale(dst []float32, a float32, x []float32) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		Scale(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.scale(dst, a, x)
}

// SumBlocks sets dst to the sum of blocks slices of its length that begin at multiples of stride in
// x, added in order.
func SumBlocks(dst, x []float32, blocks, stride int) {
	if blocks == 0 {
		clear(dst)
		return
	}
	for n := blockColumns(blocks); len(dst) > n; dst, x = dst[n:], x[n:] {
		SumBlocks(dst[:n], x, blocks, stride)
	}
	x = x[:(blocks-1)*stride+len(dst)]
	active.sumBlocks(dst, x, blocks, stride)
}

// blockColumns is how many sums of blocks elements one kernel call gets.
func blockColumns(blocks int) int { return max(chunk/blocks, 32) }

// AddBF16 is Add on bfloat16.
func AddBF16(dst, x, y []uint16) {
	x, y = x[:len(dst)], y[:len(dst)]
	for len(dst) > chunk {
		AddBF16(dst[:chunk], x[:chunk], y[:chunk])
		dst, x, y = dst[chunk:], x[chunk:], y[chunk:]
	}
	active.add16(dst, x, y)
}

// AddScaledBF16 is AddScaled but for dst, which is float32.
func AddScaledBF16(dst []float32, a float32, x []uint16) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		AddScaledBF16(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.addScaled16(dst, a, x)
}

// ScaleBF16 is Scale but for x, which is float32.
func ScaleBF16(dst []uint16, a float32, x []float32) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		ScaleBF16(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.scale16(dst, a, x)
}

// SumBlocksBF16 is SumBlocks on bfloat16: the sums are rounded once.
func SumBlocksBF16(dst, x []uint16, blocks, stride int) {
	if blocks == 0 {
		clear(dst)
		return
	}
	for n := blockColumns(blocks); len(dst) > n; dst, x = dst[n:], x[n:] {
		SumBlocksBF16(dst[:n], x, blocks, stride)
	}
	x = x[:(blocks-1)*stride+len(dst)]
	active.sumBlocks16(dst, x, blocks, stride)
}
