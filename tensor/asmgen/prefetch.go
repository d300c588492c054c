package asmgen

// The encoder of PREFETCHW, which Go's assembler does not support. Source: Intel SDM volume 2,
// "PREFETCHW".

import "fmt"

// encodePrefetchW returns the bytes of a PREFETCHW. Its operand is memory at a register and a
// displacement. ok is false for any other mnemonic.
func encodePrefetchW(mnemonic string, ops []Operand) (code []byte, ok bool) {
	if mnemonic != "PREFETCHW" {
		return nil, false
	}
	m, isMem := ops[0].(Mem)
	if !isMem || m.symbol != "" || m.scale != 0 {
		panic(fmt.Sprintf("asmgen: PREFETCHW of %v: use memory at a register without an index", ops[0]))
	}
	if m.base >= R8 {
		code = []byte{0x41} // REX.B
	}
	return append(append(code, 0x0f, 0x0d), memTail(m, 1<<3, 1)...), true
}
