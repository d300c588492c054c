package asmgen

// What the frame of a function depends on: the registers, and the instructions that load arguments,
// count and return.

// arch is an architecture.
type arch struct {
	general []Reg
	load    string // loads 8 bytes
	// jumpDown subtracts 1 from a counter and jumps unless it is 0 then.
	jumpDown func(fn *Func, counter Reg, to Label)
	leave    []string // instructions before RET
	encode   func(mnemonic string, ops []Operand) (line string, ok bool)
}

var amd64 = &arch{
	general: []Reg{AX, BX, CX, DX, SI, DI, R8, R9, R10, R11, R12, R13, R14},
	load:    "MOVQ",
	jumpDown: func(fn *Func, counter Reg, to Label) {
		fn.I("DECQ", counter)
		fn.I("JNZ", to)
	},
	leave:  []string{"VZEROUPPER"}, // keeps later SSE code fast
	encode: encodeAMD64,
}

var arm64 = &arch{
	general: arm64Registers(),
	load:    "MOVD",
	jumpDown: func(fn *Func, counter Reg, to Label) {
		fn.I("SUBS", Imm(1), counter)
		fn.I("BNE", to)
	},
	encode: encodeNeon,
}

// encodeAMD64 prints the instructions that Go's assembler does not support as bytes.
func encodeAMD64(mnemonic string, ops []Operand) (line string, ok bool) {
	code, ok := encodeEVEX(mnemonic, ops)
	if !ok {
		code, ok = encodeAMX(mnemonic, ops)
	}
	if !ok {
		code, ok = encodePrefetchW(mnemonic, ops)
	}
	if !ok {
		return "", false
	}
	return emit(code, ops) + " // " + text(mnemonic, ops), true
}
