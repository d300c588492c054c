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

//go:generate go run ./_asm

// chunk is the largest number of elements per kernel call. Assembly cannot be preempted, so the
// functions of vec_chunks.go call themselves for each chunk of a longer slice. Each call enters
// through a stack check, where the garbage collector can stop it. AdamW moves the most bytes per
// element. At 10 GB/s it takes under 50 microseconds for a chunk.
const chunk = 16 << 10

// Widen sets dst to the exact values of the bfloat16 numbers in src.
func Widen(dst []float32, src []uint16) { widenRows(dst[:len(src)], src) }

// Round sets dst to src rounded to bfloat16, to nearest with ties to even. Subnormals are
// preserved, and a NaN becomes quiet.
func Round(dst []uint16, src []float32) { roundRows(dst[:len(src)], src) }

// Add sets dst[i] = x[i] + y[i].
func Add(dst, x, y []float32) { addRows(dst, x, y) }

// Divide sets dst[i] = x[i] / y[i].
func Divide(dst, x, y []float32) { divideRows(dst, x, y) }

// AddScaled sets dst[i] += a·x[i].
func AddScaled(dst []float32, a float32, x []float32) { addScaledRows(dst, a, x) }

// Scale sets dst[i] = a·x[i].
func Scale(dst []float32, a float32, x []float32) { scaleRows(dst, a, x) }

// SumBlocks sets dst to the sum of blocks slices of its length, added in order. Slice b begins at
// x[b·stride].
func SumBlocks(dst, x []float32, blocks, stride int) {
	sumBlocks(active.sumBlocks, dst, x, blocks, stride)
}

// sumBlocks calls a kernel for ranges of dst.
func sumBlocks[T float32 | uint16](kernel func(dst, x []T, blocks, stride int), dst, x []T, blocks, stride int) {
	if blocks == 0 {
		clear(dst)
		return
	}
	for n := max(chunk/blocks, 32); len(dst) > n; dst, x = dst[n:], x[n:] {
		sumBlocks(kernel, dst[:n], x, blocks, stride)
	}
	kernel(dst, x[:(blocks-1)*stride+len(dst)], blocks, stride)
}

// AddBF16 is Add on bfloat16.
func AddBF16(dst, x, y []uint16) { addRows16(dst, x, y) }

// AddScaledBF16 is AddScaled for a bfloat16 x. dst is float32.
func AddScaledBF16(dst []float32, a float32, x []uint16) { addScaledRows16(dst, a, x) }

// ScaleBF16 is Scale for a bfloat16 dst. x is float32.
func ScaleBF16(dst []uint16, a float32, x []float32) { scaleRows16(dst, a, x) }

// SumBlocksBF16 is SumBlocks on bfloat16. The sums are rounded once.
func SumBlocksBF16(dst, x []uint16, blocks, stride int) {
	sumBlocks(active.sumBlocks16, dst, x, blocks, stride)
}
