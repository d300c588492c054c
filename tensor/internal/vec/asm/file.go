package main

// The file being printed, and the constants that its kernels share.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

type file struct {
	*asmgen.File
	words   map[uint32]asmgen.Mem
	indices asmgen.Mem // 0, 1, 2, ... 63, to make tail masks from
}

func newFile() *file {
	f := &file{File: asmgen.NewFile("vec", "go run ./asm", "amd64 && !purego"), words: map[uint32]asmgen.Mem{}}
	var indices [64]uint32
	for i := range indices {
		indices[i] = uint32(i)
	}
	f.indices = f.Data32("indices", indices[:]...)
	return f
}

// word is the place of a 32-bit constant.
func (f *file) word(bits uint32) asmgen.Mem {
	if _, ok := f.words[bits]; !ok {
		f.words[bits] = f.Data32(fmt.Sprintf("word%08x", bits), bits)
	}
	return f.words[bits]
}
