package gemm

// Storing sums as FP32 or rounding them to BF16.

import (
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// result is the destination of a product: FP32 or BF16, of elem bytes per element.
type result struct {
	View
	elem int
}

// resultOf returns out (BF16), or sum if out is empty.
func resultOf(sum, out View) result {
	if out.Ptr != nil {
		return result{out, 2}
	}
	return result{sum, 4}
}

// roundRows rounds sums into out, which may have fewer columns.
func roundRows(out, sums View) {
	whole := out.Cols / 16 * 16
	for i := range out.Rows {
		dst, src := row[uint16](out, i), row[float32](sums, i)
		if whole > 0 {
			roundGroups(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), whole/16)
		}
		for j := whole; j < len(dst); j++ {
			dst[j] = vec.ToBF16(src[j])
		}
	}
}
