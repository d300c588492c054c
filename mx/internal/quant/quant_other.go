//go:build !amd64 || purego

package quant

import (
	"unsafe"

	"spmoe/tensor/cpu"
)

// Supported says whether a tier has the kernels.
func Supported(cpu.Tier) bool { return false }

const missing = "quant: there are no kernels for this CPU; ask Supported first"

func narrowAVX512(dst, src unsafe.Pointer, n int)                                { panic(missing) }
func scanAVX512(x unsafe.Pointer, stride int, rule *Rule, work *Work) (odd bool) { panic(missing) }
func encodeRowsAVX512(t *Tile)                                                   { panic(missing) }
func encodeColsAVX512(t *Tile)                                                   { panic(missing) }
func encodeBothAVX512(t *Tile)                                                   { panic(missing) }
func encodeINT8RowsAVX512(t *Tile)                                               { panic(missing) }
func encodeINT8ColsAVX512(t *Tile)                                               { panic(missing) }
func encodeINT8BothAVX512(t *Tile)                                               { panic(missing) }
