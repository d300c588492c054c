package main

// Decoding MXINT8 to BF16 through FP32: a code has at most 7 significant bits.

import "spmoe/tensor/asmgen"

// int8Unit is minus the exponent of a code's unit, 2^-6.
const int8Unit = 6

// int8Decoding is the common part of the two functions below. Each of vs holds 16 elements as FP32.
type int8Decoding struct {
	fn                             *asmgen.Func
	args, dst, codes, scales, rows asmgen.Reg
	none, unit, v                  asmgen.Vec
	vs, factors                    []asmgen.Vec
}

func newInt8Decoding(f *asmgen.File, name, doc string) *int8Decoding {
	fn := f.Func(name, name+doc, asmgen.Arg("d", "*decoding"))
	args := fn.Load("d")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", args.Field(at), r); return r }
	d := &int8Decoding{fn: fn, args: args, dst: field("decoding_dst"), codes: field("decoding_codes"), scales: field("decoding_scales"), rows: field("decoding_rows"),
		none: fn.Z(), unit: fn.Z(), v: fn.Z(), vs: fn.Zs(4), factors: fn.Zs(4)}
	fn.I("VPBROADCASTD", f.Data32(name+"None", 0x7f7f7f7f), d.none)
	fn.I("VPBROADCASTD", f.Data32(name+"Unit", 0x01010101*int8Unit), d.unit)
	r := fn.GP()
	fn.I("KMOVQ", args.Field("decoding_scaleMask"), asmgen.K(1))
	fn.I("MOVQ", args.Field("decoding_tailMask"), r)
	for i := range d.vs {
		fn.I("KMOVW", r, asmgen.K(2+i))
		fn.I("SHRQ", asmgen.Imm(16), r)
	}
	fn.Free(r)
	return d
}

// load loads the next scales, masked by K1, and subtracts the unit. A scale below the unit becomes
// 0; a zero code may have one.
func (d *int8Decoding) load() {
	fn := d.fn
	fn.I("VMOVDQA64", d.none, d.v)
	fn.I("VMOVDQU8", d.scales.At(0), asmgen.K(1), d.v)
	fn.I("VPMINUB", d.args.Field("decoding_notes+notes_min"), d.v, d.vs[0])
	fn.I("VMOVUPS", d.vs[0], d.args.Field("decoding_notes+notes_min"))
	fn.I("VPMAXUB", d.args.Field("decoding_notes+notes_max"), d.v, d.vs[0])
	fn.I("VMOVUPS", d.vs[0], d.args.Field("decoding_notes+notes_max"))
	fn.I("VPSUBUSB", d.unit, d.v, d.v)
}

// group decodes 64 codes, or those in K2 to K5.
func (d *int8Decoding) group(from, to asmgen.Reg, masked bool, factor func(i int) asmgen.Vec) {
	fn := d.fn
	for i, v := range d.vs {
		if masked {
			fn.I("VPMOVSXBD.Z", from.At(16*i), asmgen.K(2+i), v)
		} else {
			fn.I("VPMOVSXBD", from.At(16*i), v)
		}
		fn.I("VCVTDQ2PS", v, v)
		fn.I("VMULPS", factor(i), v, v)
	}
	for i := 0; i < 4; i += 2 {
		fn.I("VCVTNE2PS2BF16", d.vs[i], d.vs[i+1], d.vs[i])
		fn.I("VMOVUPS", d.vs[i], to.At(32*i))
	}
}

// int8DecodeAlong decodes rows whose codes and scales are contiguous along k.
func int8DecodeAlong(f *asmgen.File) {
	d := newInt8Decoding(f, "decodeInt8AlongAVX512", " decodes rows (> 0) rows of count (1 to 512) codes each, contiguous along k.")
	fn := d.fn
	from, to, n, step := fn.GP(), fn.GP(), fn.GP(), fn.GP()
	group := func(masked bool) {
		for i := range 2 {
			fn.I("VBROADCASTSS", step.At(4*i), d.factors[i])
		}
		d.group(from, to, masked, func(i int) asmgen.Vec { return d.factors[i/2] })
	}
	fn.CountDown(d.rows, func() {
		tail, done := fn.Label("tail"), fn.Label("done")
		d.load()
		fn.I("VPMOVZXBD", d.v.X(), d.v)
		fn.I("VPSLLD", asmgen.Imm(23), d.v, d.v)
		fn.I("VMOVUPS", d.v, d.args.Field("decoding_steps"))
		fn.I("LEAQ", d.args.Field("decoding_steps"), step)
		fn.I("MOVQ", d.codes, from)
		fn.I("MOVQ", d.dst, to)
		fn.I("MOVQ", d.args.Field("decoding_count"), n)
		fn.I("SHRQ", asmgen.Imm(6), n)
		fn.I("JZ", tail)
		fn.CountDown(n, func() {
			group(false)
			fn.I("ADDQ", asmgen.Imm(64), from)
			fn.I("ADDQ", asmgen.Imm(128), to)
			fn.I("ADDQ", asmgen.Imm(8), step)
		})
		fn.Place(tail)
		fn.I("TESTQ", asmgen.Imm(63), d.args.Field("decoding_count"))
		fn.I("JZ", done)
		group(true)
		fn.Place(done)
		fn.I("ADDQ", d.args.Field("decoding_codeStride"), d.codes)
		fn.I("ADDQ", d.args.Field("decoding_scaleStride"), d.scales)
		fn.I("ADDQ", d.args.Field("decoding_dstStride"), d.dst)
	})
	fn.Return()
}

// int8DecodeAcross decodes rows that are adjacent in memory, as are their scales.
func int8DecodeAcross(f *asmgen.File) {
	d := newInt8Decoding(f, "decodeInt8AcrossAVX512", " decodes up to 64 codes that are adjacent across k, masked by tailMask, at each of rows (> 0) steps of k.")
	fn, steps := d.fn, d.fn.GP()
	next := fn.Label("next")
	fn.Place(next)
	d.load()
	for i, v := range d.factors {
		fn.I("VEXTRACTI32X4", asmgen.Imm(int64(i)), d.v, v.X())
		fn.I("VPMOVZXBD", v.X(), v)
		fn.I("VPSLLD", asmgen.Imm(23), v, v)
	}
	takeBlock(fn, d.rows, steps)
	fn.CountDown(steps, func() {
		d.group(d.codes, d.dst, true, func(i int) asmgen.Vec { return d.factors[i] })
		fn.I("ADDQ", d.args.Field("decoding_codeStride"), d.codes)
		fn.I("ADDQ", d.args.Field("decoding_dstStride"), d.dst)
	})
	fn.I("ADDQ", d.args.Field("decoding_scaleStride"), d.scales)
	fn.I("TESTQ", d.rows, d.rows)
	fn.I("JNZ", next)
	fn.Return()
}
