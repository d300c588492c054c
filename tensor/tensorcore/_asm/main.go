// Command asm generates the assembly of package tensorcore.
package main

import (
	"slices"

	"spmoe/tensor/asmgen"
)

func main() { asmgen.Main(files()) }

// A unit is what a chain is printed for: a tensorcore.Unit.
type unit struct {
	name                      string
	terms, fraction, mantissa int
}

var units = []unit{
	{"BF16", 16, 25, 23},
	{"HopperFP8", 32, 13, 13},
	{"BlackwellFP8", 32, 25, 23},
}

// files returns the contents of all generated files by name.
func files() map[string]string {
	all := map[string]string{}
	for _, m := range []*machine{{name: "AVX2", file: "kernels_avx2_amd64", bytes: 32, rows: 2}, {name: "AVX512", file: "kernels_avx512_amd64", bytes: 64, rows: 4}} {
		m.File = asmgen.NewFile("tensorcore", "go run ./_asm", "amd64 && !purego")
		m.words = map[string]asmgen.Mem{}
		for _, u := range units {
			m.chain(u)
		}
		m.split()
		m.promote()
		all[m.file+".s"], all[m.file+".go"] = m.Asm(), m.Stubs()
	}
	neon := asmgen.NewFileARM64("tensorcore", "go run ./_asm", "arm64 && !purego")
	for _, u := range units {
		neonChain(neon, u)
	}
	all["kernels_neon_arm64.s"], all["kernels_neon_arm64.go"] = neon.Asm(), neon.Stubs()
	return all
}

// A machine is an instruction set: the bytes of its vectors, and the rows of a tile that it has
// registers for. A tile has two vectors of columns.
type machine struct {
	*asmgen.File
	name, file  string
	bytes, rows int
	words       map[string]asmgen.Mem
}

// vectors is the number of vectors of FP32 in a row of a tile.
const vectors = 2

// kernel is a function under construction.
type kernel struct {
	*asmgen.Func
	m *machine
}

func (m *machine) begin(name, doc string, params ...asmgen.Param) *kernel {
	return &kernel{m.Func(name+m.name, doc, params...), m}
}

// vec takes a register.
func (k *kernel) vec() asmgen.Vec {
	if k.m.bytes == 32 {
		return k.Y()
	}
	return k.Z()
}

func (k *kernel) vecs(n int) []asmgen.Vec {
	vs := make([]asmgen.Vec, n)
	for i := range vs {
		vs[i] = k.vec()
	}
	return vs
}

// scratch calls body with n registers and frees them.
func (k *kernel) scratch(n int, body func(t []asmgen.Vec)) {
	t := k.vecs(n)
	body(t)
	for _, v := range slices.Backward(t) {
		k.Free(v)
	}
}

// word returns the memory of a 32-bit constant. For AVX2 it is a vector of copies.
func (k *kernel) word(name string, bits int) asmgen.Mem {
	mem, ok := k.m.words[name]
	if !ok {
		copies := 1
		if k.m.bytes == 32 {
			copies = 8
		}
		mem = k.m.Data32(name, slices.Repeat([]uint32{uint32(bits)}, copies)...)
		k.m.words[name] = mem
	}
	return mem
}

// with prints an instruction whose first operand is a constant in all lanes.
func (k *kernel) with(mnemonic string, word asmgen.Mem, ops ...asmgen.Operand) {
	if k.m.bytes == 64 {
		mnemonic += ".BCST"
	}
	k.I(mnemonic, append([]asmgen.Operand{word}, ops...)...)
}
