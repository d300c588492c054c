//go:build !amd64 || purego

package normal

import (
	"unsafe"

	"spmoe/tensor/cpu"
)

var table = cpu.Table[bool]{cpu.Generic: false}

func drawAVX512(_ unsafe.Pointer, _ uint64, _, _ float64) uint64 {
	panic("normal: there is no kernel for this CPU; ask Fast first")
}
