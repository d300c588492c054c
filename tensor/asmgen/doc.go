// Package asmgen prints Go assembly: a kernel is a Go function in which registers have names and
// loops are loops.
//
// Operands stand in Go's order (sources first, destination last), mnemonics are those of Go's
// assembler, and the few instructions it lacks (VDPBF16PS, VCVTNEPS2BF16, VCVTNE2PS2BF16) are
// written the same way and come out as bytes with the instruction in a comment. A File yields the
// .s text and the .go declarations:
//
//	f := asmgen.NewFile("example", "go run ./asm", "amd64 && !purego")
//	fn := f.Func("addOne", "addOne adds 1 to n (> 0) groups of 16 floats.",
//		asmgen.Arg("x", "unsafe.Pointer"), asmgen.Arg("n", "int"))
//	x, n := fn.Load("x"), fn.Load("n")
//	one, v := fn.Z(), fn.Z()
//	fn.I("VBROADCASTSS", f.Data32("one", math.Float32bits(1)), one)
//	fn.CountDown(n, func() {
//		fn.I("VADDPS", x.At(0), one, v)
//		fn.I("VMOVUPS", v, x.At(0))
//		fn.I("ADDQ", asmgen.Imm(64), x)
//	})
//	fn.Return()
//	files := map[string]string{"add_amd64.s": f.Asm(), "add_amd64.go": f.Stubs()}
//	err := asmgen.Write("..", files) // in the generator; asmgen.Check("..", files) in its test
//
// Kernels read Go structs by the names of their fields, which the assembler looks up in go_asm.h: a
// field that moves is followed, one that is renamed does not assemble. A constant that shapes the
// code is compared when the declarations are compiled.
//
//	fn.I("MOVQ", t.Field("tile_sum"), sum)
//	f.Constant("recordSteps", 10)
package asmgen
