package main

// The AVX2 kernels for any format. A vector has eight FP32. A block of 32 elements is processed at
// a time.

import "spmoe/tensor/asmgen"

// laneFile is the assembly file and its constants, which are vectors of 8 double words.
type laneFile struct {
	*asmgen.File
	magnitude, exponent asmgen.Mem // bits of FP32
	order               asmgen.Mem // of double words after three packings of four vectors
	quiet               asmgen.Mem // bits of the quiet NaN
}

func newLaneFile() *laneFile {
	f := asmgen.NewFile("quant", "go run ./_asm", "amd64 && !purego")
	all := func(name string, w uint32) asmgen.Mem { return f.Data32(name, w, w, w, w, w, w, w, w) }
	return &laneFile{f, all("magnitude", 1<<31-1), all("exponent", 0xff<<23), f.Data32("order", 0, 4, 1, 5, 2, 6, 3, 7),
		all("quiet", 0x1ff<<22)}
}

func pointer(names ...string) (args []asmgen.Param) {
	for _, name := range names {
		args = append(args, asmgen.Arg(name, "unsafe.Pointer"))
	}
	return args
}

// printLanes returns the file with the kernels for any format and those for strips.
func printLanes() *laneFile {
	f := newLaneFile()
	amaxRows(f)
	amaxCols(f)
	encodeLanes(f, "laneEncodeRows", false)
	encodeLanes(f, "laneEncodeCols", true)
	decodeLanes(f, "laneDecodeRows", false)
	decodeLanes(f, "laneDecodeCols", true)
	stripKernels(f.File)
	return f
}

// loadY loads 8 double words from memory into a new register.
func loadY(fn *asmgen.Func, from asmgen.Mem) asmgen.Vec {
	v := fn.Y()
	fn.I("VMOVDQU", from, v)
	return v
}

// broadcastY broadcasts a double word from memory into a new register.
func broadcastY(fn *asmgen.Func, from asmgen.Mem) asmgen.Vec {
	v := fn.Y()
	fn.I("VPBROADCASTD", from, v)
	return v
}

// amaxRows reduces 8 blocks to one vector each. It then reduces these to a single vector by taking
// maxima while transposing.
func amaxRows(f *laneFile) {
	fn := f.Func("laneAmaxRows", "laneAmaxRows takes n groups of 8 blocks.", append(pointer("out", "x"), asmgen.Arg("n", "int"))...)
	out, x, n := fn.Load("out"), fn.Load("x"), fn.Load("n")
	magnitude := loadY(fn, f.magnitude)
	fn.CountDown(n, func() {
		var v [8]asmgen.Vec
		for block := range v {
			v[block] = loadY(fn, x.At(128*block))
			fn.I("VPAND", magnitude, v[block], v[block])
			for i := 1; i < 4; i++ {
				t := fn.Y()
				fn.I("VPAND", x.At(128*block+32*i), magnitude, t)
				fn.I("VPMAXUD", t, v[block], v[block])
				fn.Free(t)
			}
		}
		interleave := func(group string, a, b asmgen.Vec) {
			t := fn.Y()
			fn.I("VPUNPCKH"+group, b, a, t)
			fn.I("VPUNPCKL"+group, b, a, a)
			fn.I("VPMAXUD", t, a, a)
			fn.Free(t)
		}
		for i := 0; i < 8; i += 2 {
			interleave("DQ", v[i], v[i+1])
		}
		interleave("QDQ", v[0], v[2])
		interleave("QDQ", v[4], v[6])
		fn.I("VPERM2I128", asmgen.Imm(0x31), v[4], v[0], v[1])
		fn.I("VPERM2I128", asmgen.Imm(0x20), v[4], v[0], v[0])
		fn.I("VPMAXUD", v[1], v[0], v[0])
		fn.I("VMOVDQU", v[0], out.At(0))
		for _, v := range v {
			fn.Free(v)
		}
		fn.I("ADDQ", asmgen.Imm(32), out)
		fn.I("ADDQ", asmgen.Imm(8*128), x)
	})
	fn.Return()
}

func amaxCols(f *laneFile) {
	fn := f.Func("laneAmaxCols", "laneAmaxCols takes n blocks per row.", append(pointer("out", "x"), asmgen.Arg("rows", "int"), asmgen.Arg("n", "int"))...)
	out, x, n := fn.Load("out"), fn.Load("x"), fn.Load("n")
	stride, row, count := fn.GP(), fn.GP(), fn.GP()
	fn.I("MOVQ", n, stride)
	fn.I("SHLQ", asmgen.Imm(7), stride)
	magnitude, v, t := loadY(fn, f.magnitude), fn.Ys(4), fn.Y()
	fn.CountDown(n, func() {
		for _, v := range v {
			fn.I("VPXOR", v, v, v)
		}
		fn.I("MOVQ", x, row)
		fn.I("MOVQ", fn.Slot("rows"), count)
		fn.CountDown(count, func() {
			for i, v := range v {
				fn.I("VPAND", row.At(32*i), magnitude, t)
				fn.I("VPMAXUD", t, v, v)
			}
			fn.I("ADDQ", stride, row)
		})
		for i, v := range v {
			fn.I("VMOVDQU", v, out.At(32*i))
		}
		fn.I("ADDQ", asmgen.Imm(128), out)
		fn.I("ADDQ", asmgen.Imm(128), x)
	})
	fn.Return()
}

// encodeLanes prints the encoder of blocks along rows or columns. format.Element.EncodeScaled
// explains why this rounds.
func encodeLanes(f *laneFile, name string, cols bool) {
	fn := f.Func(name, name+" takes n blocks.", append(pointer("codes", "x", "factors"), asmgen.Arg("n", "int"), asmgen.Arg("grid", "*Grid"))...)
	codes, x, factors, n, g := fn.Load("codes"), fn.Load("x"), fn.Load("factors"), fn.Load("n"), fn.Load("grid")
	largest, smallest, step, shift := broadcastY(fn, g.Field("Grid_largest")), broadcastY(fn, g.Field("Grid_smallest")), broadcastY(fn, g.Field("Grid_step")), fn.Y()
	fn.I("VMOVQ", g.Field("Grid_shift"), shift.X())
	bias, factor, e, power := loadY(fn, g.Field("Grid_bias")), fn.Y(), fn.Y(), fn.Y()
	var code, signed [2]asmgen.Vec
	fn.CountDown(n, func() {
		if !cols {
			fn.I("VBROADCASTSS", factors.At(0), factor)
		}
		for pair := range 2 {
			var bits, steps [2]asmgen.Vec
			for i := range 2 {
				at := 64*pair + 32*i
				bits[i], steps[i] = fn.Y(), fn.Y()
				if cols {
					fn.I("VMOVUPS", factors.At(at), factor)
				}
				fn.I("VMULPS", x.At(at), factor, bits[i])
				fn.I("VPAND", f.magnitude, bits[i], steps[i])
				fn.I("VPMINUD", largest, steps[i], steps[i])
				fn.I("VPAND", f.exponent, steps[i], e)
				fn.I("VPMAXUD", smallest, e, e)
				fn.I("VPADDD", step, e, power)
				fn.I("VADDPS", power, steps[i], steps[i])
				fn.I("VPSUBD", power, steps[i], steps[i])
				fn.I("VPSRLD", shift.X(), e, e)
				fn.I("VPADDD", e, steps[i], steps[i])
			}
			fn.I("VPACKUSDW", steps[1], steps[0], steps[0])
			fn.I("VPSUBW", bias, steps[0], steps[0])
			// Saturating keeps the signs, and +0 does not become negative.
			fn.I("VPACKSSDW", bits[1], bits[0], bits[0])
			fn.Free(bits[1], steps[1])
			code[pair], signed[pair] = steps[0], bits[0]
		}
		fn.I("VPACKUSWB", code[1], code[0], code[0])
		fn.I("VPACKSSWB", signed[1], signed[0], signed[0])
		negative := signed[1]
		fn.I("VPXOR", negative, negative, negative)
		fn.I("VPCMPGTB", signed[0], negative, negative)
		fn.I("VPAND", g.Field("Grid_sign"), negative, e)
		fn.I("VPXOR", e, code[0], code[0])
		fn.I("VPAND", g.Field("Grid_subtract"), negative, e)
		fn.I("VPSUBB", e, code[0], code[0])
		fn.I("VMOVDQU", f.order, e)
		fn.I("VPERMD", code[0], e, code[0])
		fn.I("VMOVDQU", code[0], codes.At(0))
		fn.Free(code[0], code[1], signed[0], signed[1])
		fn.I("ADDQ", asmgen.Imm(32), codes)
		fn.I("ADDQ", asmgen.Imm(128), x)
		fn.I("ADDQ", asmgen.Imm(map[bool]int64{false: 4, true: 128}[cols]), factors)
	})
	fn.Return()
}
