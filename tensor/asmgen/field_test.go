package asmgen

import (
	"strings"
	"testing"
)

// Fields are left to the assembler by name, in instructions that it supports and in those that are
// printed as bytes.
func TestFields(t *testing.T) {
	f := NewFile("p", "go run ./asm", "amd64")
	fn := f.Func("f", "f does nothing.")
	fn.I("MOVQ", AX.Field("call_count"), BX)
	fn.I("ADDQ", AX.Field("call_notes+notes_most").Plus(64).Index(BX, 8), BX)
	fn.I("SUBQ", AX.Field("call_count").Plus(-8), BX)
	fn.I("LDTILECFG", R12.Field("call_config").Plus(64))
	fn.I("VDPBF16PS", DI.Field("call_rows"), Z(24), Z(0))
	const want = `
	MOVQ call_count(AX), BX
	ADDQ call_notes+notes_most+64(AX)(BX*8), BX
	SUBQ call_count-8(AX), BX
	LONG $0x4978c2c4; WORD $0x2484; LONG $call_config+64 // LDTILECFG call_config+64(R12)
	LONG $0x403ef262; WORD $0x8752; LONG $call_rows // VDPBF16PS call_rows(DI), Z24, Z0
`
	text := f.Asm()
	if !strings.HasSuffix(text, want[1:]) {
		t.Errorf("the function is\n%s\nwant\n%s", text, want)
	}
	if !strings.Contains(text, "\n#include \"go_asm.h\"\n") {
		t.Errorf("go_asm.h is missing:\n%s", text)
	}
}

func TestConstant(t *testing.T) {
	f := NewFile("p", "go run ./asm", "amd64")
	f.Constant("len(work{})", 80)
	const want = "\nconst (\n\t_ = uint(len(work{}) - 80)\n\t_ = uint(80 - len(work{}))\n)\n"
	if stubs := f.Stubs(); !strings.Contains(stubs, want) {
		t.Errorf("declarations:\n%s\nwant in them\n%s", stubs, want)
	}
}
