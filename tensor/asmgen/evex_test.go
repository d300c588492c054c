package asmgen

import (
	"encoding/hex"
	"testing"
)

func TestEncodeEVEX(t *testing.T) {
	// Operands are in Go's order, the reverse of Intel's. Bytes are those of GNU binutils.
	tests := []struct {
		want, mnemonic string
		ops            []Operand
	}{
		{"62f26e4852d9", "VDPBF16PS", []Operand{Z(1), Z(2), Z(3)}},
		{"62222e4852e1", "VDPBF16PS", []Operand{Z(17), Z(10), Z(28)}},
		{"62f23e40524701", "VDPBF16PS", []Operand{DI.At(64), Z(24), Z(0)}},
		{"62e23650527e01", "VDPBF16PS.BCST", []Operand{SI.At(4), Z(25), Z(23)}},
		{"62c23650527c2401", "VDPBF16PS.BCST", []Operand{R12.At(4), Z(25), Z(23)}},
		{"62d27648529564000000", "VDPBF16PS", []Operand{R13.At(100), Z(1), Z(2)}},
		{"62327e4872cb", "VCVTNEPS2BF16", []Operand{Z(19), vec(9, 256)}},
		{"62f26f4872d9", "VCVTNE2PS2BF16", []Operand{Z(1), Z(2), Z(3)}},
	}
	for _, tt := range tests {
		code, ok := encodeEVEX(tt.mnemonic, tt.ops)
		if got := hex.EncodeToString(code); !ok || got != tt.want {
			t.Errorf("%s %v = %s, want %s", tt.mnemonic, tt.ops, got, tt.want)
		}
	}
	if _, ok := encodeEVEX("VADDPS", []Operand{Z(1), Z(2), Z(3)}); ok {
		t.Error("VADDPS is known to Go's assembler and must be left to it")
	}
}

func TestEmitBytes(t *testing.T) {
	got := emitBytes([]byte{0x62, 0xf2, 0x3e, 0x40, 0x52, 0x47, 0x01})
	if want := "LONG $0x403ef262; WORD $0x4752; BYTE $0x01"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
