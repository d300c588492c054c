package asmgen

import (
	"encoding/hex"
	"testing"
)

func TestEncodeAMX(t *testing.T) {
	// Operands are in Go's order, the reverse of Intel's. Bytes are those of GNU binutils.
	tests := []struct {
		want, mnemonic string
		ops            []Operand
	}{
		{"c4e2784900", "LDTILECFG", []Operand{AX.At(0)}},
		{"c4c278494558", "LDTILECFG", []Operand{R13.At(88)}},
		{"c4c27849442410", "LDTILECFG", []Operand{R12.At(16)}},
		{"c4e27849c0", "TILERELEASE", nil},
		{"c4e27b49c0", "TILEZERO", []Operand{TMM(0)}},
		{"c4e27b49f8", "TILEZERO", []Operand{TMM(7)}},
		{"c4e27b4b0c1e", "TILELOADD", []Operand{SI.At(0).Index(BX, 1), TMM(1)}},
		{"c4827b4b741440", "TILELOADD", []Operand{R12.At(64).Index(R10, 1), TMM(6)}},
		{"c4827b4ba40d00040000", "TILELOADD", []Operand{R13.At(1024).Index(R9, 1), TMM(4)}},
		{"c4e2794b5c0d00", "TILELOADDT1", []Operand{BP.At(0).Index(CX, 1), TMM(3)}},
		{"c4e27a4b041f", "TILESTORED", []Operand{TMM(0), DI.At(0).Index(BX, 1)}},
		{"c4827a4b5c1840", "TILESTORED", []Operand{TMM(3), R8.At(64).Index(R11, 1)}},
		{"c4e26a5cc1", "TDPBF16PS", []Operand{TMM(2), TMM(1), TMM(0)}},
		{"c4e2425cdd", "TDPBF16PS", []Operand{TMM(7), TMM(5), TMM(3)}},
	}
	for _, tt := range tests {
		code, ok := encodeAMX(tt.mnemonic, tt.ops)
		if got := hex.EncodeToString(code); !ok || got != tt.want {
			t.Errorf("%s %v = %s, want %s", tt.mnemonic, tt.ops, got, tt.want)
		}
	}
	if _, ok := encodeAMX("VDPBF16PS", nil); ok {
		t.Error("VDPBF16PS is not of AMX")
	}
}
