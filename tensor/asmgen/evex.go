package asmgen

// The EVEX encoder, for the AVX512_BF16 instructions. Go's assembler does not support them. Source:
// Intel SDM volume 2, 2.7 "Intel AVX-512 encoding".

import (
	"encoding/binary"
	"fmt"
	"strings"
)

type evexOp struct {
	// pp: 2 = F3, 3 = F2. All instructions are in opcode map 0F38 with W = 0.
	opcode, pp byte
	sources    int
	narrow     bool // the destination is half as wide as the source
}

var evexOps = map[string]evexOp{
	"VDPBF16PS":      {0x52, 2, 2, false},
	"VCVTNE2PS2BF16": {0x72, 3, 2, false},
	"VCVTNEPS2BF16":  {0x72, 2, 1, true},
}

// encodeEVEX returns the bytes of an instruction of evexOps. ok is false for any other mnemonic.
// The suffixes .BCST and .Z and a mask before the destination have the same meaning as in Go's
// assembler.
func encodeEVEX(mnemonic string, ops []Operand) (code []byte, ok bool) {
	name, suffixes, _ := strings.Cut(mnemonic, ".")
	op, ok := evexOps[name]
	if !ok {
		return nil, false
	}
	e := evex{op: op}
	for s := range strings.SplitSeq(suffixes, ".") {
		switch s {
		case "":
		case "BCST":
			e.broadcast = 1
		case "Z":
			e.zeroing = 1
		default:
			panic("asmgen: unknown suffix in " + mnemonic)
		}
	}
	if n := len(ops); n == op.sources+2 {
		e.mask = byte(ops[n-2].(Mask))
		ops = append(append([]Operand{}, ops[:n-2]...), ops[n-1])
	}
	if len(ops) != op.sources+1 {
		panic(fmt.Sprintf("asmgen: %s takes %d operands, not %d", name, op.sources+1, len(ops)))
	}
	e.dst = ops[len(ops)-1].(Vec)
	e.bits = e.dst.bits
	if op.narrow {
		e.bits = max(128, 2*e.dst.bits)
		if v, isVec := ops[0].(Vec); isVec {
			e.bits = v.bits
		}
	}
	if op.sources == 2 {
		e.src1 = ops[1].(Vec)
	}
	return e.bytes(ops[0]), true
}

type evex struct {
	op                       evexOp
	dst, src1                Vec
	bits                     uint16
	mask, broadcast, zeroing byte
}

// bytes assembles the instruction. rm is its second source, a register or memory.
func (e evex) bytes(rm Operand) []byte {
	var x, b byte // bits 4 and 3 of a register rm; index and base bit 3 of a memory rm
	var tail []byte
	reg := e.dst.id & 7 << 3
	switch rm := rm.(type) {
	case Vec:
		x, b = rm.id>>4&1, rm.id>>3&1
		tail = []byte{0xc0 | reg | rm.id&7}
	case Mem:
		if rm.symbol != "" {
			panic("asmgen: load " + rm.String() + " into a register first")
		}
		if rm.scale != 0 {
			x = byte(rm.index) >> 3 & 1
		}
		b = byte(rm.base) >> 3 & 1
		unit := int(e.bits / 8)
		if e.broadcast == 1 {
			unit = 4
		}
		tail = memTail(rm, reg, unit)
	default:
		panic(fmt.Sprintf("asmgen: %v cannot be a source: use a vector register or memory", rm))
	}
	inv := func(bit byte) byte { return bit&1 ^ 1 }
	length := map[uint16]byte{128: 0, 256: 1, 512: 2}[e.bits]
	p0 := inv(e.dst.id>>3)<<7 | inv(x)<<6 | inv(b)<<5 | inv(e.dst.id>>4)<<4 | 2
	p1 := (^e.src1.id&15)<<3 | 1<<2 | e.op.pp
	p2 := e.zeroing<<7 | length<<5 | e.broadcast<<4 | inv(e.src1.id>>4)<<3 | e.mask
	return append([]byte{0x62, p0, p1, p2, e.op.opcode}, tail...)
}

// memTail returns ModRM, SIB and displacement. An 8-bit displacement counts units, the size of the
// access. The displacement of a field has 32 bits. emit leaves it to the assembler.
func memTail(m Mem, reg byte, unit int) []byte {
	base := byte(m.base) & 7
	var mod byte
	var disp []byte
	switch {
	case m.field != "":
		mod, disp = 2<<6, make([]byte, fieldBytes)
	case m.disp == 0 && base != 5: // base 101 without displacement means RIP-relative
	case m.disp%unit == 0 && m.disp/unit >= -128 && m.disp/unit < 128:
		mod, disp = 1<<6, []byte{byte(m.disp / unit)}
	default:
		mod, disp = 2<<6, binary.LittleEndian.AppendUint32(nil, uint32(int32(m.disp)))
	}
	tail := []byte{mod | reg | base}
	if m.scale != 0 || base == 4 {
		index, scale := byte(4), byte(0) // 100: no index
		if m.scale != 0 {
			index, scale = byte(m.index)&7, map[int]byte{1: 0, 2: 1, 4: 2, 8: 3}[m.scale]
		}
		tail = []byte{mod | reg | 4, scale<<6 | index<<3 | base}
	}
	return append(tail, disp...)
}

// fieldBytes is the length of the displacement of a field, which ends the instruction.
const fieldBytes = 4

// emit prints the bytes of an instruction with the given operands.
func emit(code []byte, ops []Operand) string {
	for _, op := range ops {
		if m, ok := op.(Mem); ok && m.field != "" {
			return emitBytes(code[:len(code)-fieldBytes]) + "; LONG $" + m.offset()
		}
	}
	return emitBytes(code)
}

func emitBytes(b []byte) string {
	var parts []string
	for len(b) > 0 {
		switch {
		case len(b) >= 4:
			parts = append(parts, fmt.Sprintf("LONG $0x%08x", binary.LittleEndian.Uint32(b)))
			b = b[4:]
		case len(b) >= 2:
			parts = append(parts, fmt.Sprintf("WORD $0x%04x", binary.LittleEndian.Uint16(b)))
			b = b[2:]
		default:
			parts = append(parts, fmt.Sprintf("BYTE $0x%02x", b[0]))
			b = b[1:]
		}
	}
	return strings.Join(parts, "; ")
}
