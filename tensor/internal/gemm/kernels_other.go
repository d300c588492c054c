//go:build (!amd64 && !arm64) || purego

package gemm

import (
	"unsafe"

	"spmoe/tensor/cpu"
	"spmoe/tensor/internal/vec"
)

var table = cpu.Table[*kernels]{cpu.Generic: &genericKernels}

// roundGroups rounds n (> 0) groups of 16 FP32 to BF16, to nearest even.
func roundGroups(dst, src unsafe.Pointer, n int) {
	to, from := unsafe.Slice((*uint16)(dst), 16*n), unsafe.Slice((*float32)(src), 16*n)
	for i, x := range from {
		to[i] = vec.ToBF16(x)
	}
}
