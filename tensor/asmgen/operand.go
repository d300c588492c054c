package asmgen

// Operands: general, vector and mask registers, memory, immediates. Each prints itself in Go's
// assembler syntax.

import "fmt"

// Operand is anything an instruction takes.
type Operand interface{ String() string }

// Reg is a 64-bit general register, numbered as the hardware does.
type Reg uint8

// The general registers. SP is the hardware stack pointer; BP is the frame pointer and must be left
// alone.
const (
	AX Reg = iota
	CX
	DX
	BX
	SP
	BP
	SI
	DI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
)

var regNames = [...]string{"AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI"}

func (r Reg) String() string {
	if int(r) < len(regNames) {
		return regNames[r]
	}
	return fmt.Sprintf("R%d", uint8(r))
}

// At is the memory disp bytes past the address in r.
func (r Reg) At(disp int) Mem { return Mem{base: r, disp: disp} }

// A Field is where a field of a Go struct lies, in the words of go_asm.h: type_field. A field of a
// struct within another is the sum of both, as in "outer_inner+inner_field". The assembler knows
// the numbers, and refuses names that it does not know.
type Field string

// Field is the memory of a field of the struct at the address in r.
func (r Reg) Field(f Field) Mem { return Mem{base: r, field: f} }

// Vec is a vector register: number 0..31 and width in bits.
type Vec struct {
	id   uint8
	bits uint16
}

// Z, Y and X name vector register i by width: 512, 256 and 128 bits.
func Z(i int) Vec { return vec(i, 512) }
func Y(i int) Vec { return vec(i, 256) }
func X(i int) Vec { return vec(i, 128) }

func vec(i, bits int) Vec {
	if i < 0 || i > 31 {
		panic(fmt.Sprintf("asmgen: vector register %d", i))
	}
	return Vec{uint8(i), uint16(bits)}
}

// Y is the low 256 bits of v.
func (v Vec) Y() Vec { return Vec{v.id, 256} }

// X is the low 128 bits of v.
func (v Vec) X() Vec { return Vec{v.id, 128} }

func (v Vec) String() string {
	return fmt.Sprintf("%c%d", map[uint16]rune{512: 'Z', 256: 'Y', 128: 'X'}[v.bits], v.id)
}

// Mask is an AVX-512 mask register, K0..K7. As an operand just before the destination it masks the
// instruction (merging, or zeroing with the mnemonic's .Z suffix).
type Mask uint8

// K names mask register i.
func K(i int) Mask { return Mask(i) }

func (k Mask) String() string { return fmt.Sprintf("K%d", uint8(k)) }

// Mem is a memory operand: base + index*scale + field + disp, or a read-only symbol of the file.
type Mem struct {
	base, index Reg
	scale       int // 0: no index
	field       Field
	disp        int
	symbol      string
}

// Plus is m moved by disp bytes.
func (m Mem) Plus(disp int) Mem { m.disp += disp; return m }

// Index is m plus r*scale, scale 1, 2, 4 or 8.
func (m Mem) Index(r Reg, scale int) Mem {
	if m.scale != 0 || m.symbol != "" || r == SP || scale&(scale-1) != 0 || scale < 1 || scale > 8 {
		panic(fmt.Sprintf("asmgen: cannot index %v by %v*%d", m, r, scale))
	}
	m.index, m.scale = r, scale
	return m
}

func (m Mem) String() string {
	if m.symbol != "" {
		return fmt.Sprintf("%s<>+%d(SB)", m.symbol, m.disp)
	}
	s := fmt.Sprintf("%s(%v)", m.offset(), m.base)
	if m.scale != 0 {
		s += fmt.Sprintf("(%v*%d)", m.index, m.scale)
	}
	return s
}

// offset is what is added to the registers: nothing, a number, a field, or a field and a number.
func (m Mem) offset() string {
	switch {
	case m.field == "" && m.disp == 0:
		return ""
	case m.field == "":
		return fmt.Sprint(m.disp)
	case m.disp == 0:
		return string(m.field)
	}
	return fmt.Sprintf("%s%+d", m.field, m.disp)
}

// Imm is an immediate.
type Imm int64

func (i Imm) String() string { return fmt.Sprintf("$%d", int64(i)) }

// Label is a jump target of one function, from Func.Label.
type Label string

func (l Label) String() string { return string(l) }

type frameSlot string

func (s frameSlot) String() string { return string(s) }
