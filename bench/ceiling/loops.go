package main

// Inner loops in the machine code of arm64. Source of the encodings: Arm Architecture Reference
// Manual for A-profile, C4.1.65 "Branches".

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// A function is an assembly function with its machine code.
type function struct {
	name  string // package and function
	words []uint32
}

// kernelsOf returns the assembly functions of the project's kernels in a program.
func kernelsOf(program string) ([]function, error) {
	file, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file.Machine != elf.EM_AARCH64 {
		return nil, fmt.Errorf("%s is a program for %v: build it with GOARCH=arm64 GOOS=linux", program, file.Machine)
	}
	symbols, err := file.Symbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: build it without -s", program, err)
	}
	text := file.Section(".text")
	code, err := text.Data()
	if err != nil {
		return nil, err
	}
	var functions []function
	for _, s := range symbols {
		name, assembly := strings.CutSuffix(s.Name, ".abi0")
		if !assembly || !strings.HasPrefix(name, "spmoe/") {
			continue
		}
		f := function{name: name[strings.LastIndex(name, "/")+1:]}
		for at := s.Value - text.Addr; at+4 <= s.Value-text.Addr+s.Size; at += 4 {
			f.words = append(f.words, binary.LittleEndian.Uint32(code[at:]))
		}
		functions = append(functions, f)
	}
	slices.SortFunc(functions, func(a, b function) int { return strings.Compare(a.name, b.name) })
	return functions, nil
}

// innerLoops returns the loops that contain no other loop, each up to its branch back.
func innerLoops(words []uint32) [][]uint32 {
	var loops [][]uint32
	last := -1 // the previous branch back
	for i, word := range words {
		by, ok := jump(word)
		if !ok || by >= 0 {
			continue
		}
		if head := i + by; head > last && head >= 0 {
			loops = append(loops, words[head:i+1])
		}
		last = i
	}
	return loops
}

// jump returns by how many words a conditional branch jumps.
func jump(word uint32) (by int, ok bool) {
	signed := func(low, bits int) int { return int(int32(word<<(32-low-bits)) >> (32 - bits)) }
	switch {
	case word>>24 == 0x54, word>>25&0x3f == 0x1a: // B.cond; CBZ, CBNZ
		return signed(5, 19), true
	case word>>25&0x3f == 0x1b: // TBZ, TBNZ
		return signed(5, 14), true
	}
	return 0, false
}
