package main

// The kernels for E4M3 codes with FP32 scales. Numbers are BF16, in runs of 32 elements.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// e4m3File returns the kernels for E4M3 with FP32 scales.
func e4m3File() *asmgen.File {
	f := asmgen.NewFile("quant", "go run ./asm", "amd64 && !purego")
	amaxRuns(f)
	amaxColumns(f)
	encodeRuns(f)
	encodeColumns(f)
	decodeE4M3(f, "decodeRunsAVX512", false)
	decodeE4M3(f, "decodeColumnsAVX512", true)
	return f
}

// broadcastWord returns a register with a double word in every lane.
func broadcastWord(f *asmgen.File, fn *asmgen.Func, name string, word uint32) asmgen.Vec {
	v := fn.Z()
	fn.I("VPBROADCASTD", f.Data32(name, word), v)
	return v
}

// twoMagnitudes clears the signs of two BF16.
const twoMagnitudes = 0x7fff7fff

// amaxRuns prints the largest magnitude of each run. The smallest word of the complement is the
// complement of the largest.
func amaxRuns(f *asmgen.File) {
	fn := f.Func("amaxRunsAVX512", "amaxRunsAVX512 takes n runs.", append(pointer("amax", "x"), asmgen.Arg("n", "int"))...)
	amax, x, n := fn.Load("amax"), fn.Load("x"), fn.Load("n")
	mask, ones, v, t := broadcastWord(f, fn, "runMagnitudes", twoMagnitudes), fn.Y(), fn.Z(), fn.Z()
	fn.I("VPCMPEQD", ones, ones, ones)
	fn.CountDown(n, func() {
		fn.I("VPANDD", x.At(0), mask, v)
		fn.I("VEXTRACTI64X4", asmgen.Imm(1), v, t.Y())
		fn.I("VPMAXUW", t.Y(), v.Y(), v.Y())
		fn.I("VEXTRACTI128", asmgen.Imm(1), v.Y(), t.X())
		fn.I("VPMAXUW", t.X(), v.X(), v.X())
		fn.I("VPXOR", ones.X(), v.X(), v.X())
		fn.I("VPHMINPOSUW", v.X(), v.X())
		fn.I("VPXOR", ones.X(), v.X(), v.X())
		fn.I("VPSLLD", asmgen.Imm(16), v.X(), v.X())
		fn.I("VMOVD", v.X(), amax.At(0))
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(4), amax)
	})
	fn.Return()
}

// amaxColumns prints the largest magnitude of each column.
func amaxColumns(f *asmgen.File) {
	fn := f.Func("amaxColumnsAVX512", "amaxColumnsAVX512 takes n runs of columns. Rows are stride bytes apart.",
		append(pointer("amax", "x"), asmgen.Arg("stride", "int"), asmgen.Arg("rows", "int"), asmgen.Arg("n", "int"))...)
	amax, x, stride, n, row, count := fn.Load("amax"), fn.Load("x"), fn.Load("stride"), fn.Load("n"), fn.GP(), fn.GP()
	mask, m, v := broadcastWord(f, fn, "columnMagnitudes", twoMagnitudes), fn.Z(), fn.Z()
	fn.CountDown(n, func() {
		fn.I("VPXORD", m, m, m)
		fn.I("MOVQ", x, row)
		fn.I("MOVQ", fn.Slot("rows"), count)
		fn.CountDown(count, func() {
			fn.I("VPANDD", row.At(0), mask, v)
			fn.I("VPMAXUW", v, m, m)
			fn.I("ADDQ", stride, row)
		})
		fn.I("VEXTRACTI64X4", asmgen.Imm(1), m, v.Y())
		for i, half := range []asmgen.Vec{m, v} {
			fn.I("VPMOVZXWD", half.Y(), half)
			fn.I("VPSLLD", asmgen.Imm(16), half, half)
			fn.I("VMOVDQU64", half, amax.At(64*i))
		}
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(128), amax)
	})
	fn.Return()
}

// e4m3Encoder prints the rounding of encodeLanes for E4M3.
type e4m3Encoder struct {
	*asmgen.Func
	magnitude, largest, exponent, smallest, step, sign asmgen.Vec

	v, m, own, t asmgen.Vec
}

func newE4M3Encoder(f *asmgen.File, fn *asmgen.Func, name string) e4m3Encoder {
	constant := func(of string, word uint32) asmgen.Vec { return broadcastWord(f, fn, name+of, word) }
	return e4m3Encoder{
		fn, constant("Magnitude", 1<<31-1), constant("Largest", math.Float32bits(448)), constant("Exponent", 0xff<<23),
		constant("Smallest", (127-6)<<23), constant("Step", 20<<23), constant("Sign", 0x80), fn.Z(), fn.Z(), fn.Z(), fn.Z(),
	}
}

// half writes the codes of 16 BF16 times their factors.
func (e *e4m3Encoder) half(codes, x asmgen.Mem, factor asmgen.Vec) {
	e.I("VPMOVZXWD", x, e.v)
	e.I("VPSLLD", asmgen.Imm(16), e.v, e.v)
	e.I("VMULPS", factor, e.v, e.v)
	e.I("VPANDD", e.magnitude, e.v, e.m)
	e.I("VPMINUD", e.largest, e.m, e.m)
	e.I("VPANDD", e.exponent, e.m, e.own)
	e.I("VPMAXUD", e.smallest, e.own, e.own)
	e.I("VPADDD", e.step, e.own, e.t)
	e.I("VADDPS", e.t, e.m, e.m)
	e.I("VPSUBD", e.t, e.m, e.m)
	e.I("VPSUBD", e.smallest, e.own, e.own)
	e.I("VPSRLD", asmgen.Imm(20), e.own, e.own)
	e.I("VPADDD", e.own, e.m, e.m)
	e.I("VPSRLD", asmgen.Imm(24), e.v, e.t)
	e.I("VPTERNLOGD", asmgen.Imm(0xf8), e.sign, e.t, e.m) // m | t & sign
	e.I("VPMOVDB", e.m, codes)
}

// encodeRuns prints the encoder with one factor per run.
func encodeRuns(f *asmgen.File) {
	fn := f.Func("encodeRunsAVX512", "encodeRunsAVX512 takes n runs with one factor each.", append(pointer("codes", "x", "factors"), asmgen.Arg("n", "int"))...)
	codes, x, factors, n := fn.Load("codes"), fn.Load("x"), fn.Load("factors"), fn.Load("n")
	e, factor := newE4M3Encoder(f, fn, "encodeRuns"), fn.Z()
	fn.CountDown(n, func() {
		fn.I("VBROADCASTSS", factors.At(0), factor)
		for i := range 2 {
			e.half(codes.At(16*i), x.At(32*i), factor)
		}
		fn.I("ADDQ", asmgen.Imm(32), codes)
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(4), factors)
	})
	fn.Return()
}

// encodeColumns prints the encoder with one factor per column, run by run of columns.
func encodeColumns(f *asmgen.File) {
	fn := f.Func("encodeColumnsAVX512", "encodeColumnsAVX512 takes n runs of columns. Rows of x are stride bytes apart, and those of\n"+
		"codes step bytes.", append(pointer("codes", "x", "factors"), asmgen.Arg("step", "int"), asmgen.Arg("stride", "int"), asmgen.Arg("rows", "int"), asmgen.Arg("n", "int"))...)
	codes, x, factors, step, stride, n := fn.Load("codes"), fn.Load("x"), fn.Load("factors"), fn.Load("step"), fn.Load("stride"), fn.Load("n")
	e, pair := newE4M3Encoder(f, fn, "encodeColumns"), fn.Zs(2)
	from, to, count := fn.GP(), fn.GP(), fn.GP()
	fn.CountDown(n, func() {
		for i, factor := range pair {
			fn.I("VMOVUPS", factors.At(64*i), factor)
		}
		fn.I("MOVQ", x, from)
		fn.I("MOVQ", codes, to)
		fn.I("MOVQ", fn.Slot("rows"), count)
		fn.CountDown(count, func() {
			for i, factor := range pair {
				e.half(to.At(16*i), from.At(32*i), factor)
			}
			fn.I("ADDQ", stride, from)
			fn.I("ADDQ", step, to)
		})
		fn.I("ADDQ", asmgen.Imm(32), codes)
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(128), factors)
	})
	fn.Return()
}

// decodeE4M3 prints the decoder of n runs with one scale per run or per column. The seven bits of
// a magnitude, moved to the exponent and mantissa of FP16, read as 2^-8 times the number.
func decodeE4M3(f *asmgen.File, name string, columns bool) {
	fn := f.Func(name, name+" takes n runs.", append(pointer("dst", "codes", "scales"), asmgen.Arg("n", "int"))...)
	dst, codes, scales, n := fn.Load("dst"), fn.Load("codes"), fn.Load("scales"), fn.Load("n")
	number, nan := broadcastWord(f, fn, name+"Number", 0xbf80bf80), broadcastWord(f, fn, name+"NaN", 0x7e007e00)
	most, bias := broadcastWord(f, fn, name+"Most", 0x3f803f80), broadcastWord(f, fn, name+"Bias", math.Float32bits(256))
	w, t, v, scale, isNaN := fn.Z(), fn.Z(), fn.Z(), fn.Z(), asmgen.K(1)
	fn.CountDown(n, func() {
		if !columns {
			fn.I("VBROADCASTSS", scales.At(0), scale)
		}
		fn.I("VPMOVSXBW", codes.At(0), w)
		fn.I("VPSLLW", asmgen.Imm(7), w, w)
		fn.I("VPANDD", number, w, w)
		fn.I("VPANDD", most, w, t)
		fn.I("VPCMPEQW", most, t, isNaN)
		fn.I("VMOVDQU16", nan, isNaN, w)
		fn.I("VEXTRACTI64X4", asmgen.Imm(1), w, t.Y())
		for i, half := range []asmgen.Vec{w, t} {
			fn.I("VCVTPH2PS", half.Y(), v)
			fn.I("VMULPS", bias, v, v)
			if columns {
				fn.I("VMULPS", scales.At(64*i), v, v)
			} else {
				fn.I("VMULPS", scale, v, v)
			}
			fn.I("VPSRLD", asmgen.Imm(16), v, v)
			fn.I("VPMOVDW", v, dst.At(32*i))
		}
		fn.I("ADDQ", asmgen.Imm(32), codes)
		fn.I("ADDQ", asmgen.Imm(64), dst)
		fn.I("ADDQ", asmgen.Imm(map[bool]int64{false: 4, true: 128}[columns]), scales)
	})
	fn.Return()
}
