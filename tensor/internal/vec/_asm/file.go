package main

// The file being printed, and the constants that its kernels share.

import (
	"fmt"
	"math"
	"slices"

	"spmoe/tensor/asmgen"
)

type file struct {
	*output
	avx2  bool // only; otherwise AVX-512
	words map[uint32]asmgen.Mem
	// indices is 0, 1, 2, ... for computing tail masks: 128 of 16 bits, or 16 of 32 bits for AVX2.
	indices asmgen.Mem
	powers  asmgen.Mem // 2**(i/16); see ../exp.go

	// For AVX-512 only.
	// even and odd are 0, 2, ... 30 and 1, 3, ... 31. They separate the elements of two registers.
	even, odd asmgen.Mem
	// packed is 1, 3, ... 63 in 16 bits: the upper halves of the elements of two registers.
	packed asmgen.Mem
}

func newFile(avx2 bool) *file {
	f := &file{output: newOutput("AVX512", asmgen.NewFile, "amd64"), avx2: avx2, words: map[uint32]asmgen.Mem{}}
	if avx2 {
		f.tier = "AVX2"
	}
	f.powers = f.Data32("powers", words32(func(i uint32) uint32 { return math.Float32bits(float32(math.Exp2(float64(i) / 16))) })...)
	if avx2 {
		f.indices = f.Data32("indices", words32(func(i uint32) uint32 { return i })...)
		return f
	}
	f.indices = f.Data32("indices", words16(128, func(i uint32) uint32 { return i })...)
	f.even = f.Data32("even", words32(func(i uint32) uint32 { return 2 * i })...)
	f.odd = f.Data32("odd", words32(func(i uint32) uint32 { return 2*i + 1 })...)
	f.packed = f.Data32("packed", words16(32, func(i uint32) uint32 { return 2*i + 1 })...)
	return f
}

func (f *file) streams() bool { return true }

func words32(at func(i uint32) uint32) []uint32 {
	w := make([]uint32, 16)
	for i := range w {
		w[i] = at(uint32(i))
	}
	return w
}

func words16(n int, at func(i uint32) uint32) []uint32 {
	w := make([]uint32, n/2)
	for i := range w {
		w[i] = at(uint32(2*i)) | at(uint32(2*i+1))<<16
	}
	return w
}

// word returns the memory of a 32-bit constant. For AVX2 it is a vector of copies.
func (f *file) word(bits uint32) asmgen.Mem {
	if _, ok := f.words[bits]; !ok {
		copies := 1
		if f.avx2 {
			copies = 8
		}
		f.words[bits] = f.Data32(fmt.Sprintf("word%08x", bits), slices.Repeat([]uint32{bits}, copies)...)
	}
	return f.words[bits]
}
