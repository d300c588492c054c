package asmgen

// The encoder of NEON instructions that Go's assembler does not support. Their names are V and
// ARM's name. Source: Arm Architecture Reference Manual for A-profile, C7.2 and C4.1.

import (
	"fmt"
	"strings"
)

// neonOp is an instruction for given arrangements of its operands.
type neonOp struct {
	word     uint32
	operands string // arrangements in ARM's order, the destination first
}

// neonOps lists the instructions. An operand "S" is one element. A number is an immediate
// that is part of the word.
var neonOps = map[string][]neonOp{
	"VFADD":   {{0x4e20d400, "S4 S4 S4"}, {0x4e60d400, "D2 D2 D2"}},
	"VFSUB":   {{0x4ea0d400, "S4 S4 S4"}},
	"VFMUL":   {{0x6e20dc00, "S4 S4 S4"}, {0x6e60dc00, "D2 D2 D2"}, {0x4f809000, "S4 S4 S"}},
	"VFDIV":   {{0x6e20fc00, "S4 S4 S4"}},
	"VFMAX":   {{0x4e20f400, "S4 S4 S4"}},
	"VFMIN":   {{0x4ea0f400, "S4 S4 S4"}},
	"VFCMEQ":  {{0x4e20e400, "S4 S4 S4"}},
	"VFCMGT":  {{0x6ea0e400, "S4 S4 S4"}},
	"VFNEG":   {{0x6ea0f800, "S4 S4"}},
	"VFSQRT":  {{0x6ea1f800, "S4 S4"}},
	"VFCVTZS": {{0x4ea1b800, "S4 S4"}},
	"VSCVTF":  {{0x4e21d800, "S4 S4"}},
	"VUCVTF":  {{0x6e21d800, "S4 S4"}},
	"VFCVTL":  {{0x0e617800, "D2 S2"}},
	"VFCVTL2": {{0x4e617800, "D2 S4"}},
	"VFMLA":   {{0x4f801000, "S4 S4 S"}},
	"VCMGT":   {{0x4ea03400, "S4 S4 S4"}},
	"VSMAX":   {{0x4ea06400, "S4 S4 S4"}, {0x4e606400, "H8 H8 H8"}},
	"VSMIN":   {{0x4ea06c00, "S4 S4 S4"}},
	"VUMAXP":  {{0x6ea0a400, "S4 S4 S4"}},
	"VUSHL":   {{0x6ea04400, "S4 S4 S4"}},
	"VABS":    {{0x4ea0b800, "S4 S4"}},
	"VNEG":    {{0x6ea0b800, "S4 S4"}},
	"VCLZ":    {{0x6ea04800, "S4 S4"}},
	"VBIC":    {{0x4e601c00, "B16 B16 B16"}},
	"VSSHR":   {{0x4f1c0400, "H8 H8 4"}, {0x4f1d0400, "H8 H8 3"}, {0x4f280400, "S4 S4 24"}, {0x4f300400, "S4 S4 16"}, {0x4f090400, "B16 B16 7"}},
	"VSHLL":   {{0x2e613800, "S4 H4 16"}},
	"VSHLL2":  {{0x6e613800, "S4 H8 16"}},
	"VBFMMLA": {{0x6e40ec00, "S4 H8 H8"}},
}

// encodeNeon returns an instruction of neonOps as a word, followed by the text of ARM's assembler
// in a comment. ok is false for any other mnemonic or arrangement. Operands are in Go's order:
// sources reversed, the destination last.
func encodeNeon(mnemonic string, ops []Operand) (line string, ok bool) {
	var kinds, texts []string
	var regs []Neon
	for i := len(ops) - 1; i >= 0; i-- {
		switch op := ops[i].(type) {
		case Neon:
			kinds, texts, regs = append(kinds, string(op.lanes)), append(texts, op.arm()), append(regs, op)
		case Imm:
			kinds, texts = append(kinds, fmt.Sprint(int64(op))), append(texts, fmt.Sprintf("#%d", int64(op)))
		default:
			return "", false
		}
	}
	for _, op := range neonOps[mnemonic] {
		if op.operands == strings.Join(kinds, " ") {
			name := strings.ToLower(strings.TrimPrefix(mnemonic, "V"))
			return fmt.Sprintf("WORD $0x%08x // %s %s", op.word|fieldsOf(regs), name, strings.Join(texts, ", ")), true
		}
	}
	return "", false
}

// fieldsOf returns the register numbers at their places: Rd, Rn, Rm. An element of Rm adds its two
// bits at H and L.
func fieldsOf(regs []Neon) uint32 {
	var word uint32
	for i, r := range regs {
		word |= uint32(r.id) << [...]uint{0, 5, 16}[i]
		if r.lane >= 0 {
			word |= uint32(r.lane)&1<<21 | uint32(r.lane)>>1<<11
		}
	}
	return word
}
