// Package asmgen prints Go assembly from Go functions. Each kernel is a Go function in which
// registers have names and loops are loops.
//
// Operands are in Go's order: sources first, destination last. Mnemonics are those of Go's
// assembler. Instructions that it does not support (AVX512_BF16, AMX, PREFETCHW) are written the
// same way. They are printed as bytes, with the instruction in a comment. A [File] returns the text
// of the .s file and of the .go declarations. A [Func] prints one function:
//
//	f := asmgen.NewFile("example", "go run ./_asm", "amd64 && !purego")
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
//	asmgen.Main(files)
//
// [NewFileARM64] begins a file for arm64. NEON instructions that Go's assembler does not support
// are printed as words, with the text of ARM's assembler in a comment. A test compares each of them
// with llvm-mc:
//
//	v := fn.Vs(2)
//	fn.I("FLDPQ", x.At(0), asmgen.Pair{v[0], v[1]})
//	fn.I("VFADD", v[0].S4(), v[1].S4(), v[1].S4())
//	fn.I("FMOVQ", v[1], x.At(0))
//
// Kernels read Go structs by the names of their fields, which the assembler looks up in go_asm.h.
// A field can move, but a renamed field does not assemble. A constant that shapes the code is
// checked when the declarations are compiled:
//
//	fn.I("MOVQ", t.Field("tile_sum"), sum)
//	f.Constant("recordSteps", 10)
package asmgen
