// Package normal draws normal numbers in FP32 by AVX-512: those that package moe defines.
//
// The definition rounds FP64 numbers to FP32 that plain Go computes. The kernel computes FP64
// numbers within a relative 2^-38 of them. Nearly always no FP64 number so close rounds to another
// FP32. The kernel says where it might, and there the definition must decide.
package normal

//go:generate go run ./_asm

import (
	"unsafe"

	"spmoe/tensor/cpu"
)

// Run is the number of elements that Draw draws.
const Run = 64

// Fast says whether the tier in use has the kernel. Only tests change it.
var Fast = cpu.Choose("initial weights", table)

// Draw sets dst to normal numbers with standard deviation std: element i is drawn from counter +
// i·0x9e3779b97f4a7c15. Bit i of unsure says that element i is not to be trusted. All of magnitude
// cut or more are among these.
func Draw(dst *[Run]float32, counter uint64, std, cut float64) (unsure uint64) {
	return drawAVX512(unsafe.Pointer(dst), counter, std, cut)
}
