package asmgen

// Operands of arm64: general registers R0 to R25 and the vector registers V0 to V31.

import "fmt"

// Neon is a vector register of arm64, read as the lanes of an arrangement.
type Neon struct {
	id    uint8
	lanes lanes
	lane  int8 // one element; -1: all
}

// lanes is an arrangement in Go's syntax, such as S4. It is empty for a whole register, as loads
// and stores take it.
type lanes string

// NeonReg returns vector register i as a whole.
func NeonReg(i int) Neon {
	if i < 0 || i > 31 {
		panic(fmt.Sprintf("asmgen: vector register %d: there are 0 to 31", i))
	}
	return Neon{id: uint8(i), lane: -1}
}

func (v Neon) as(l lanes) Neon { return Neon{v.id, l, -1} }

// S4 returns v as four FP32 numbers or 32-bit integers.
func (v Neon) S4() Neon { return v.as("S4") }

// D2 returns v as two FP64 numbers or 64-bit integers.
func (v Neon) D2() Neon { return v.as("D2") }

// H8 returns v as eight 16-bit numbers.
func (v Neon) H8() Neon { return v.as("H8") }

// B16 returns v as 16 bytes.
func (v Neon) B16() Neon { return v.as("B16") }

// S2 returns the low half of v as two FP32 numbers or 32-bit integers.
func (v Neon) S2() Neon { return v.as("S2") }

// H4 returns the low half of v as four 16-bit numbers.
func (v Neon) H4() Neon { return v.as("H4") }

// S returns element i of the four 32-bit elements of v.
func (v Neon) S(i int) Neon {
	if i < 0 || i > 3 {
		panic(fmt.Sprintf("asmgen: element %d of %v: there are 0 to 3", i, v))
	}
	return Neon{v.id, "S", int8(i)}
}

// String returns the operand in Go's assembler. A whole register is a floating-point register
// there.
func (v Neon) String() string {
	switch {
	case v.lanes == "":
		return fmt.Sprintf("F%d", v.id)
	case v.lane >= 0:
		return fmt.Sprintf("V%d.%s[%d]", v.id, v.lanes, v.lane)
	}
	return fmt.Sprintf("V%d.%s", v.id, v.lanes)
}

// arm returns the operand in the syntax of ARM's assembler.
func (v Neon) arm() string {
	switch {
	case v.lane >= 0:
		return fmt.Sprintf("v%d.%s[%d]", v.id, armLanes[v.lanes], v.lane)
	case v.lanes == "":
		return fmt.Sprintf("q%d", v.id)
	}
	return fmt.Sprintf("v%d.%s", v.id, armLanes[v.lanes])
}

var armLanes = map[lanes]string{"S4": "4s", "D2": "2d", "H8": "8h", "B16": "16b", "S2": "2s", "H4": "4h", "S": "s"}

// Pair is the operand of an instruction that loads or stores two registers.
type Pair [2]Operand

// String returns the operand in Go's assembler.
func (p Pair) String() string { return fmt.Sprintf("(%v, %v)", p[0], p[1]) }

// r0 is R0 of arm64. The other general registers follow it.
const r0 Reg = 32

// arm64Registers lists the general registers that functions may use: all except R16 to R18 and
// those that Go reserves.
func arm64Registers() []Reg {
	var rs []Reg
	for i := range Reg(26) {
		if i < 16 || i > 18 {
			rs = append(rs, r0+i)
		}
	}
	return rs
}

// V takes the free vector register with the lowest number, of an arm64 function.
func (fn *Func) V() Neon { return NeonReg(int(fn.Z().id)) }

// Vs takes n vector registers of an arm64 function.
func (fn *Func) Vs(n int) []Neon {
	vs := make([]Neon, n)
	for i := range vs {
		vs[i] = fn.V()
	}
	return vs
}
