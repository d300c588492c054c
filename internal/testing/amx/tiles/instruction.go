// Package tiles executes AMX instructions in plain Go: it decodes them, and keeps the tiles of a
// thread. It is a second implementation of what the kernels rely on and shares no code with them.
//
// Source: Intel SDM volume 1, chapter 18 "Programming with Intel AMX", and volume 2, the pages of
// the instructions.
package tiles

// Instructions and their encoding.

import (
	"encoding/binary"
	"fmt"
)

// Op is an instruction's name.
type Op string

// The instructions that Decode knows. The last letters of a product are the types of its operands.
const (
	Configure Op = "LDTILECFG"
	Release   Op = "TILERELEASE"
	Zero      Op = "TILEZERO"
	Load      Op = "TILELOADD"
	LoadT1    Op = "TILELOADDT1" // with a hint that the data is not needed again
	Store     Op = "TILESTORED"
	DotBF16   Op = "TDPBF16PS"
	DotInt8   Op = "TDPBSSD"
)

// Instruction is a decoded instruction. Products compute Tile += A·B. Other instructions use Tile,
// Memory or both.
type Instruction struct {
	Op         Op
	Tile, A, B int
	Memory     Address
	Size       int // in bytes
}

// Address is the address of a memory operand, Base + Disp. Index holds the bytes from one row of a
// tile to the next, divided by Scale.
type Address struct {
	Base, Index int // numbers of registers, or None, or IP
	Scale       int
	Disp        int32
}

// Numbers of registers beyond the sixteen general ones.
const (
	None = -1 // reads as zero
	IP   = 16 // the address of the next instruction
)

// form is what tells instructions with one opcode apart: the mandatory prefix, and whether the
// operand is memory.
type form struct {
	opcode, prefix byte
	memory         bool
}

// The mandatory prefixes as VEX encodes them.
const (
	noPrefix = iota
	prefix66
	prefixF3
	prefixF2
)

var forms = map[form]Op{
	{0x49, noPrefix, true}:  Configure,
	{0x49, noPrefix, false}: Release,
	{0x49, prefixF2, false}: Zero,
	{0x4b, prefixF2, true}:  Load,
	{0x4b, prefix66, true}:  LoadT1,
	{0x4b, prefixF3, true}:  Store,
	{0x5c, prefixF3, false}: DotBF16,
	{0x5e, prefixF2, false}: DotInt8,
}

// Decode decodes the instruction at the start of code. ok is false if it is none of the above, or
// incomplete.
func Decode(code []byte) (in Instruction, ok bool) {
	const vex, map0F38 = 0xc4, 2
	if len(code) < 5 || code[0] != vex || code[1]&31 != map0F38 || code[2]&0x84 != 0 { // W = 0, L = 0
		return in, false
	}
	extend := ^code[1] // bits 7 to 5 extend ModRM.reg, the index and the base
	modRM := code[4]
	memory := modRM>>6 != 3
	in.Op, ok = forms[form{code[3], code[2] & 3, memory}]
	reg := int(extend>>7<<3 | modRM>>3&7)
	rm := int(extend>>5&1<<3 | modRM&7)
	vvvv := int(^code[2] >> 3 & 15)
	if !ok || reg > 7 {
		return in, false
	}
	in.Tile, in.Size = reg, 5
	if memory {
		size, found := in.Memory.decode(code[4:], extend)
		in.Size = 4 + size
		plain := in.Op == Configure && reg == 0
		indexed := in.Op != Configure && modRM&7 == sibFollows
		return in, found && vvvv == 0 && (plain || indexed)
	}
	switch in.Op {
	case Release:
		return in, modRM == 0xc0 && rm == 0 && vvvv == 0
	case Zero:
		return in, rm == 0 && vvvv == 0
	}
	in.A, in.B = rm, vvvv
	return in, rm < 8 && vvvv < 8
}

// sibFollows is the value of ModRM.rm that announces a SIB byte.
const sibFollows = 4

// decode decodes a memory operand from its ModRM byte on and returns its size. code is incomplete
// if ok is false.
func (a *Address) decode(code []byte, extend byte) (size int, ok bool) {
	mod, base, size := code[0]>>6, code[0]&7, 1
	*a = Address{Index: None, Scale: 1}
	if base == sibFollows {
		if len(code) < 2 {
			return 0, false
		}
		sib := code[1]
		a.Scale = 1 << (sib >> 6)
		if index := int(extend>>6&1<<3 | sib>>3&7); index != 4 {
			a.Index = index
		}
		base, size = sib&7, 2
	}
	a.Base = int(extend>>5&1<<3 | base)
	bytes := map[byte]int{0: 0, 1: 1, 2: 4}[mod]
	if mod == 0 && base == 5 { // no base
		a.Base, bytes = None, 4
		if size == 1 {
			a.Base = IP
		}
	}
	if len(code) < size+bytes {
		return 0, false
	}
	switch disp := code[size:]; bytes {
	case 1:
		a.Disp = int32(int8(disp[0]))
	case 4:
		a.Disp = int32(binary.LittleEndian.Uint32(disp))
	}
	return size + bytes, true
}

var registerNames = [...]string{"AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI",
	"R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15", "IP"}

// String returns the address in the syntax of Go's assembler.
func (a Address) String() string {
	s := ""
	if a.Disp != 0 || a.Base == None {
		s = fmt.Sprint(a.Disp)
	}
	if a.Base != None {
		s += "(" + registerNames[a.Base] + ")"
	}
	if a.Index != None {
		s += fmt.Sprintf("(%s*%d)", registerNames[a.Index], a.Scale)
	}
	return s
}

// String returns the instruction in the syntax of Go's assembler: the destination comes last.
func (in Instruction) String() string {
	switch in.Op {
	case Configure:
		return fmt.Sprintf("%s %v", in.Op, in.Memory)
	case Release:
		return string(in.Op)
	case Zero:
		return fmt.Sprintf("%s TMM%d", in.Op, in.Tile)
	case Load, LoadT1:
		return fmt.Sprintf("%s %v, TMM%d", in.Op, in.Memory, in.Tile)
	case Store:
		return fmt.Sprintf("%s TMM%d, %v", in.Op, in.Tile, in.Memory)
	}
	return fmt.Sprintf("%s TMM%d, TMM%d, TMM%d", in.Op, in.B, in.A, in.Tile)
}
