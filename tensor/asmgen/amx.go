package asmgen

// The encoder of AMX instructions, which Go's assembler does not support. Source: Intel SDM volume
// 2, 2.3.5 "VEX" and the pages of the instructions.

import "fmt"

// Tile is one of the eight tile registers of AMX.
type Tile uint8

// TMM returns tile register i.
func TMM(i int) Tile {
	if i < 0 || i > 7 {
		panic(fmt.Sprintf("asmgen: tile register %d: AMX has 0 to 7", i))
	}
	return Tile(i)
}

// String returns the name in Go's assembler.
func (t Tile) String() string { return fmt.Sprintf("TMM%d", uint8(t)) }

// amxOps lists the instructions. All are in opcode map 0F38 with W = 0 and L = 0. pp: 1 = 66, 2 =
// F3, 3 = F2.
var amxOps = map[string]struct{ opcode, pp byte }{
	"LDTILECFG":   {0x49, 0},
	"TILERELEASE": {0x49, 0},
	"TILEZERO":    {0x49, 3},
	"TILELOADD":   {0x4b, 3},
	"TILELOADDT1": {0x4b, 1},
	"TILESTORED":  {0x4b, 2},
	"TDPBF16PS":   {0x5c, 2},
}

// encodeAMX returns the bytes of an instruction of amxOps. ok is false for any other mnemonic.
// Operands are in Go's order: sources reversed, the destination last. A tile's memory is indexed by
// a register times 1, which holds the bytes between rows.
func encodeAMX(mnemonic string, ops []Operand) (code []byte, ok bool) {
	op, ok := amxOps[mnemonic]
	if !ok {
		return nil, false
	}
	var reg, second byte
	tail := []byte{0xc0} // TILERELEASE
	base, index := AX, AX
	memory := func(m Mem) {
		base = m.base
		if m.scale != 0 {
			index = m.index
		}
		tail = memTail(m, reg<<3, 1)
	}
	switch mnemonic {
	case "LDTILECFG":
		memory(ops[0].(Mem))
	case "TILEZERO":
		tail = []byte{0xc0 | byte(ops[0].(Tile))<<3}
	case "TILELOADD", "TILELOADDT1":
		reg = byte(ops[1].(Tile))
		memory(indexed(mnemonic, ops[0].(Mem)))
	case "TILESTORED":
		reg = byte(ops[0].(Tile))
		memory(indexed(mnemonic, ops[1].(Mem)))
	case "TDPBF16PS":
		second = byte(ops[0].(Tile))
		tail = []byte{0xc0 | byte(ops[2].(Tile))<<3 | byte(ops[1].(Tile))}
	}
	inv := func(r Reg) byte { return byte(r)>>3&1 ^ 1 }
	return append([]byte{0xc4, 1<<7 | inv(index)<<6 | inv(base)<<5 | 2, (^second&15)<<3 | op.pp, op.opcode}, tail...), true
}

func indexed(mnemonic string, m Mem) Mem {
	if m.scale != 1 {
		panic(fmt.Sprintf("asmgen: %s of %v: index the memory by a register times 1", mnemonic, m))
	}
	return m
}
