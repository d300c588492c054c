package asmgen

// Operands: general, vector and mask registers, memory, immediates. Each prints itself in the
// syntax of Go's assembler.

import "fmt"

// Operand is an operand of an instruction.
type Operand interface{ String() string }

// Reg is a 64-bit general register, with the hardware's number. Those of arm64 start at r0.
type Reg uint8

// The general registers of amd64. SP is the hardware stack pointer. BP is the frame pointer: do not
// change it.
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

// String returns the name in Go's assembler.
func (r Reg) String() string {
	switch {
	case int(r) < len(regNames):
		return regNames[r]
	case r >= r0:
		return fmt.Sprintf("R%d", uint8(r-r0))
	}
	return fmt.Sprintf("R%d", uint8(r))
}

// At returns the memory disp bytes after the address in r.
func (r Reg) At(disp int) Mem { return Mem{base: r, disp: disp} }

// A Field is the offset of a field in a Go struct, by its name in go_asm.h: type_field. For a field
// of a nested struct it is a sum, as in "outer_inner+inner_field". The assembler knows the numbers,
// and rejects unknown names.
type Field string

// Field returns the memory of a field of the struct at the address in r.
func (r Reg) Field(f Field) Mem { return Mem{base: r, field: f} }

// Vec is a vector register, with a number from 0 to 31 and a width in bits.
type Vec struct {
	id   uint8
	bits uint16
}

// Z returns vector register i with its full 512 bits.
func Z(i int) Vec { return vec(i, 512) }

func vec(i, bits int) Vec {
	if i < 0 || i > 31 {
		panic(fmt.Sprintf("asmgen: vector register %d: there are 0 to 31", i))
	}
	return Vec{uint8(i), uint16(bits)}
}

// Y returns the low 256 bits of v.
func (v Vec) Y() Vec { return Vec{v.id, 256} }

// X returns the low 128 bits of v.
func (v Vec) X() Vec { return Vec{v.id, 128} }

// String returns the name in Go's assembler.
func (v Vec) String() string {
	return fmt.Sprintf("%c%d", map[uint16]rune{512: 'Z', 256: 'Y', 128: 'X'}[v.bits], v.id)
}

// Mask is an AVX-512 mask register, K0 to K7. It masks an instruction as the operand before the
// destination. The masking merges, or zeroes if the mnemonic has the suffix .Z.
type Mask uint8

// K returns mask register i.
func K(i int) Mask { return Mask(i) }

// String returns the name in Go's assembler.
func (k Mask) String() string { return fmt.Sprintf("K%d", uint8(k)) }

// Mem is a memory operand: base + index*scale + field + disp, or a read-only symbol of the file.
type Mem struct {
	base, index Reg
	scale       int // 0: no index
	field       Field
	disp        int
	symbol      string
}

// Plus returns m moved by disp bytes.
func (m Mem) Plus(disp int) Mem { m.disp += disp; return m }

// Index returns m + r*scale. scale is 1, 2, 4 or 8.
func (m Mem) Index(r Reg, scale int) Mem {
	if m.scale != 0 || m.symbol != "" || r == SP || scale&(scale-1) != 0 || scale < 1 || scale > 8 {
		panic(fmt.Sprintf("asmgen: cannot index %v by %v*%d: the memory must have a base and no index yet, and the scale be 1, 2, 4 or 8", m, r, scale))
	}
	m.index, m.scale = r, scale
	return m
}

// String returns the operand in Go's assembler.
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

// Address returns the address of m as an immediate of arm64.
func (m Mem) Address() Operand {
	if text := m.String(); text[0] != '(' {
		return address("$" + text)
	}
	return address("$0" + m.String())
}

type address string

func (a address) String() string { return string(a) }

// offset returns the text before the registers: nothing, a number, a field, or a field and a
// number.
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

// String returns the operand in Go's assembler.
func (i Imm) String() string { return fmt.Sprintf("$%d", int64(i)) }

// Label is a jump target in one function, from Func.Label.
type Label string

// String returns the name in Go's assembler.
func (l Label) String() string { return string(l) }

type frameSlot string

func (s frameSlot) String() string { return string(s) }
