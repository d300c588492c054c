// Command asm generates the assembly of package stream.
package main

import "spmoe/tensor/asmgen"

func main() { asmgen.Main(files()) }

// files returns the contents of all generated files by name.
func files() map[string]string {
	f := asmgen.NewFile("stream", "go run ./_asm", "amd64 && !purego")
	copyLines(f)
	sum := asmgen.NewFile("stream", "go run ./_asm", "amd64 && !purego")
	sumRows(sum)
	return map[string]string{
		"copy_avx2_amd64.s": f.Asm(), "copy_avx2_amd64.go": f.Stubs(),
		"sum_avx512_amd64.s": sum.Asm(), "sum_avx512_amd64.go": sum.Stubs(),
	}
}

// copyLines loads four cache lines before it stores them. Streams of reads and of writes then take
// turns at the memory.
func copyLines(f *asmgen.File) {
	fn := f.Func("copyAVX2", "copyAVX2 copies blocks (> 0) times 256 bytes past the caches; dst is aligned to 32 bytes.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("blocks", "int"))
	dst, src, blocks := fn.Load("dst"), fn.Load("src"), fn.Load("blocks")
	vs := fn.Ys(8)
	fn.CountDown(blocks, func() {
		for i, v := range vs {
			fn.I("VMOVDQU", src.At(32*i), v)
		}
		for i, v := range vs {
			fn.I("VMOVNTDQ", v, dst.At(32*i))
		}
		fn.I("ADDQ", asmgen.Imm(256), src)
		fn.I("ADDQ", asmgen.Imm(256), dst)
	})
	fn.Return()
	fn = f.Func("fence", "fence makes streaming stores visible before any later store.")
	fn.I("SFENCE")
	fn.I("RET")
}

// sumColumns is the number of columns that sumRows holds in registers while it goes through the
// rows.
const sumColumns = 128

// sumRows reads all rows in parallel, so that their cache misses overlap. A sum stays in registers
// until it is complete. On the way it prefetches the rows of the next call: a row is too short for
// the hardware to predict the next one. Each product is rounded before it is added, as in the
// kernels that add one row at a time.
func sumRows(f *asmgen.File) {
	fn := f.Func("sumAVX512", "sumAVX512 sets blocks (> 0) times 128 elements of dst to the sum of n (> 0) rows times their weights.\n"+
		"It fetches the same of n rows ahead.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("rows", "unsafe.Pointer"), asmgen.Arg("ahead", "unsafe.Pointer"), asmgen.Arg("weights", "unsafe.Pointer"), asmgen.Arg("n", "int"), asmgen.Arg("blocks", "int"))
	dst, rows, ahead, weights, n, blocks := fn.Load("dst"), fn.Load("rows"), fn.Load("ahead"), fn.Load("weights"), fn.Load("n"), fn.Load("blocks")
	at, i, row := fn.GP(), fn.GP(), fn.GP()
	sums, xs, w := fn.Zs(sumColumns/16), fn.Zs(sumColumns/16), fn.Z()
	fn.I("XORQ", at, at)
	fn.CountDown(blocks, func() {
		for _, s := range sums {
			fn.I("VXORPS", s.Y(), s.Y(), s.Y())
		}
		fn.I("XORQ", i, i)
		next := fn.Label("next")
		fn.Place(next)
		fn.I("MOVQ", rows.At(0).Index(i, 8), row)
		fn.I("VBROADCASTSS", weights.At(0).Index(i, 4), w)
		for j, x := range xs {
			fn.I("VPMOVZXWD", row.At(32*j).Index(at, 1), x)
		}
		fn.I("MOVQ", ahead.At(0).Index(i, 8), row)
		for j := range sumColumns * 2 / 64 {
			fn.I("PREFETCHT1", row.At(64*j).Index(at, 1))
		}
		for _, x := range xs {
			fn.I("VPSLLD", asmgen.Imm(16), x, x)
		}
		for _, x := range xs {
			fn.I("VMULPS", w, x, x)
		}
		for j, x := range xs {
			fn.I("VADDPS", x, sums[j], sums[j])
		}
		fn.I("INCQ", i)
		fn.I("CMPQ", i, n)
		fn.I("JLT", next)
		for j, s := range sums {
			fn.I("VMOVUPS", s, dst.At(64*j))
		}
		fn.I("ADDQ", asmgen.Imm(4*sumColumns), dst)
		fn.I("ADDQ", asmgen.Imm(2*sumColumns), at)
	})
	fn.Return()
}
