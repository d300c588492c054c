package asmgen

import (
	"strings"
	"testing"
)

// TestInterleave: instructions alternate, also if a body interleaves. No body gets a register that
// another used.
func TestInterleave(t *testing.T) {
	f := NewFile("example", "go run ./asm", "amd64")
	fn := f.Func("chains", "")
	chain := func(n int) func() {
		return func() {
			v := fn.Z()
			for range n {
				fn.I("VADDPS", v, v, v)
			}
			fn.Free(v)
		}
	}
	fn.Interleave(chain(1), func() { fn.Interleave(chain(2), chain(1)) }, chain(2))
	fn.I("VMOVAPS", fn.Z(), Z(31))
	var registers []string
	for line := range strings.Lines(f.Asm()) {
		if _, ops, ok := strings.Cut(line, "VADDPS "); ok {
			registers = append(registers, ops[:2])
		}
	}
	if got, want := strings.Join(registers, " "), "Z0 Z1 Z3 Z2 Z3 Z1"; got != want {
		t.Errorf("chains ran in registers %s, want %s", got, want)
	}
	if !strings.Contains(f.Asm(), "VMOVAPS Z0, Z31") {
		t.Error("registers were not freed")
	}
}

func TestInterleavePanicsOnLabels(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a label was accepted")
		}
	}()
	fn := NewFile("example", "go run ./asm", "amd64").Func("loop", "")
	fn.Interleave(func() { fn.Place(fn.Label("head")) })
}
