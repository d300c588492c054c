// Package vec holds the row kernels of package tensor: loops over float32 and bfloat16 slices.
//
// Each kernel comes as a function on float32, such as [Add]. A name that ends in BF16 marks the
// variant on bfloat16. Its results have the same bits as widening to float32, running the float32
// kernel and rounding. It takes only one pass over memory.
//
// All slices of a call have the same length unless a comment says otherwise. Length and alignment
// are arbitrary. A destination may be the same slice as an input. Slices must not overlap in any
// other way.
//
// Every tier gives the same bits, except that NaNs may differ. Sums follow one fixed split into
// lanes. Products are rounded before they are added, except in Exp. The conversions float32(a*b)
// enforce this on compilers that would otherwise fuse the two.
package vec

//go:generate go run ./asm

// chunk is the largest number of elements per kernel call. Assembly cannot be preempted, so the
// exported functions call themselves for each chunk of a longer slice. Each call enters through a
// stack check, where the garbage collector can stop it. AdamW moves the most bytes per element. At
// 10 GB/s it takes under 50 microseconds for a chunk.
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

// Round sets dst to src rounded to bfloat16, to nearest with ties to even. Subnormals are
// preserved, and a NaN becomes quiet.
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

// SumBlocks sets dst to the sum of blocks slices of its length, added in order. Slice b begins at
// x[b·stride].
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

// blockColumns returns the number of elements of dst per kernel call, where each is a sum of blocks
// elements.
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

// AddScaledBF16 is AddScaled for a bfloat16 x. dst is float32.
func AddScaledBF16(dst []float32, a float32, x []uint16) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		AddScaledBF16(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.addScaled16(dst, a, x)
}

// ScaleBF16 is Scale for a bfloat16 dst. x is float32.
func ScaleBF16(dst []uint16, a float32, x []float32) {
	x = x[:len(dst)]
	for len(dst) > chunk {
		ScaleBF16(dst[:chunk], a, x[:chunk])
		dst, x = dst[chunk:], x[chunk:]
	}
	active.scale16(dst, a, x)
}

// SumBlocksBF16 is SumBlocks on bfloat16. The sums are rounded once.
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
