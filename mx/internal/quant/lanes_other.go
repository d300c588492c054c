//go:build (!amd64 && !arm64) || purego

package quant

import (
	"unsafe"

	"spmoe/tensor/cpu"
)

// Table says which kernels a tier has.
var Table = cpu.Table[Kernels]{cpu.Generic: Plain}

func laneAmaxRows(out, x unsafe.Pointer, n int)                           { panic(missing) }
func laneAmaxCols(out, x unsafe.Pointer, rows, n int)                     { panic(missing) }
func laneEncodeRows(codes, x, factors unsafe.Pointer, n int, g *Grid)     { panic(missing) }
func laneEncodeCols(codes, x, factors unsafe.Pointer, n int, g *Grid)     { panic(missing) }
func laneDecodeRows(dst, codes, scales unsafe.Pointer, n int, d *Decoder) { panic(missing) }
func laneDecodeCols(dst, codes, scales unsafe.Pointer, n int, d *Decoder) { panic(missing) }
