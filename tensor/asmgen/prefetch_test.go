package asmgen

import (
	"encoding/hex"
	"testing"
)

func TestEncodePrefetchW(t *testing.T) {
	// Bytes are those of GNU binutils.
	for want, at := range map[string]Mem{
		"410f0d09":         R9.At(0),
		"410f0d4940":       R9.At(64),
		"0f0d0b":           BX.At(0),
		"410f0d4c2410":     R12.At(16),
		"410f0d8d00040000": R13.At(1024),
	} {
		code, ok := encodePrefetchW("PREFETCHW", []Operand{at})
		if got := hex.EncodeToString(code); !ok || got != want {
			t.Errorf("PREFETCHW %v = %s, want %s", at, got, want)
		}
	}
	if _, ok := encodePrefetchW("PREFETCHT0", []Operand{BX.At(0)}); ok {
		t.Error("PREFETCHT0 is not PREFETCHW")
	}
}
