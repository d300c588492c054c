package main

// Decoding codes to BF16 for AVX2 through FP32. F16C widens minifloats: their exponents fit in
// those of half precision, including subnormals. Assembly takes whole blocks and groups, and Go
// handles the tails.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// halfFormat describes how codes become FP32 numbers, and if shifted, 2^-8 times these.
type halfFormat struct {
	name    string
	shifted bool   // the exponent is one bit shorter than that of half precision
	special uint16 // bits of a half-precision number that are all set if it is not finite
}

var halfFormats = []halfFormat{
	{name: "E4M3", shifted: true, special: 0x3f80},
	{name: "E5M2", special: 0x7c00},
}

// lanesAVX2 is the number of codes that are decoded at once.
const lanesAVX2 = 16

func decodeAVX2(f *asmgen.File) {
	f.Constant("decodeGroup", lanesAVX2)
	for _, format := range halfFormats {
		decodeAlongAVX2(f, format)
		decodeAcrossAVX2(f, format)
	}
}

// halfDecoding is the common part of both layouts.
type halfDecoding struct {
	halfFormat
	fn                              *asmgen.Func
	args, dst, codes, scales, rows  asmgen.Reg
	least, most, bad                asmgen.Vec // notes
	keep, special, adjust, greatest asmgen.Vec // constants
	x, y                            asmgen.Vec
	factors                         []asmgen.Vec
}

func newHalfDecoding(f *asmgen.File, format halfFormat, layout, doc string) *halfDecoding {
	name := "decode" + format.name + layout + "AVX2"
	fn := f.Func(name, name+doc+"\nIt records scales in min and max, and codes that are not finite in bad.", asmgen.Arg("d", "*decoding"))
	args := fn.Load("d")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", args.Field(at), r); return r }
	d := &halfDecoding{halfFormat: format, fn: fn, args: args, dst: field("decoding_dst"), codes: field("decoding_codes"), scales: field("decoding_scales"), rows: field("decoding_rows"),
		least: fn.Y(), most: fn.Y(), x: fn.Y(), y: fn.Y(), factors: fn.Ys(2)}
	constant := func(what string, word uint32) asmgen.Vec {
		v := fn.Y()
		fn.I("VPBROADCASTD", f.Data32(name+what, word), v)
		return v
	}
	d.special, d.bad = constant("Special", uint32(format.special)*0x10001), fn.Y()
	fn.I("VPXOR", d.bad, d.bad, d.bad)
	if format.shifted {
		d.keep, d.adjust, d.greatest = constant("Keep", 0xbfffbfff), constant("Adjust", 0x08080808), constant("Greatest", 0xfefefefe)
	}
	fn.I("VMOVUPS", args.Field("decoding_notes+notes_min"), d.least)
	fn.I("VMOVUPS", args.Field("decoding_notes+notes_max"), d.most)
	return d
}

// adjusted converts scales (bytes) to the exponents of factors. Scales outside the range saturate
// to a zero or finite factor, so zeros stay zeros.
func (d *halfDecoding) adjusted(v asmgen.Vec) {
	if d.shifted {
		d.fn.I("VPADDUSB", d.adjust, v, v)
		d.fn.I("VPMINUB", d.greatest, v, v)
	}
}

// group decodes lanesAVX2 codes. There is one factor per half.
func (d *halfDecoding) group(from, to asmgen.Mem, factors ...asmgen.Vec) {
	fn, x, y := d.fn, d.x, d.y
	fn.I("VPMOVZXBW", from, x)
	fn.I("VPSLLW", asmgen.Imm(8), x, x)
	if d.shifted { // a bit of the exponent between the sign and the others
		fn.I("VPSRAW", asmgen.Imm(1), x, x)
		fn.I("VPAND", d.keep, x, x)
	}
	fn.I("VPAND", d.special, x, y)
	fn.I("VPCMPEQW", d.special, y, y)
	fn.I("VPOR", y, d.bad, d.bad)
	fn.I("VEXTRACTI128", asmgen.Imm(1), x, y.X())
	fn.I("VCVTPH2PS", x.X(), x)
	fn.I("VCVTPH2PS", y.X(), y)
	fn.I("VMULPS", factors[0], x, x)
	fn.I("VMULPS", factors[1], y, y)
	fn.I("VPSRLD", asmgen.Imm(16), x, x)
	fn.I("VPSRLD", asmgen.Imm(16), y, y)
	fn.I("VPACKUSDW", y, x, x)
	fn.I("VPERMQ", asmgen.Imm(0xd8), x, x)
	fn.I("VMOVUPS", x, to)
}

// finish stores the notes. The lowest bit of each byte of bad is the bit that it notes.
func (d *halfDecoding) finish(least, most asmgen.Vec) {
	d.fn.I("VMOVUPS", least, d.args.Field("decoding_notes+notes_min"))
	d.fn.I("VMOVUPS", most, d.args.Field("decoding_notes+notes_max"))
	d.fn.I("VPOR", d.args.Field("decoding_notes+notes_bad"), d.bad, d.bad)
	d.fn.I("VMOVUPS", d.bad, d.args.Field("decoding_notes+notes_bad"))
	d.fn.Return()
}

// decodeAlongAVX2 decodes rows whose codes and scales are contiguous along k.
func decodeAlongAVX2(f *asmgen.File, format halfFormat) {
	d := newHalfDecoding(f, format, "Along", " decodes rows (> 0) rows of count codes each, whole blocks (> 0), contiguous along k.")
	fn := d.fn
	from, to, scale, n, factor := fn.GP(), fn.GP(), fn.GP(), fn.GP(), d.factors[0]
	fn.CountDown(d.rows, func() {
		fn.I("MOVQ", d.codes, from)
		fn.I("MOVQ", d.dst, to)
		fn.I("MOVQ", d.scales, scale)
		fn.I("MOVQ", d.args.Field("decoding_count"), n)
		fn.I("SHRQ", asmgen.Imm(5), n)
		fn.CountDown(n, func() {
			fn.I("VPBROADCASTB", scale.At(0), factor)
			fn.I("VPMINUB", factor, d.least, d.least)
			fn.I("VPMAXUB", factor, d.most, d.most)
			d.adjusted(factor)
			fn.I("VPSRLD", asmgen.Imm(24), factor, factor)
			fn.I("VPSLLD", asmgen.Imm(23), factor, factor)
			for i := range 2 {
				d.group(from.At(lanesAVX2*i), to.At(2*lanesAVX2*i), factor, factor)
			}
			fn.I("ADDQ", asmgen.Imm(32), from)
			fn.I("ADDQ", asmgen.Imm(64), to)
			fn.I("INCQ", scale)
		})
		fn.I("ADDQ", d.args.Field("decoding_codeStride"), d.codes)
		fn.I("ADDQ", d.args.Field("decoding_scaleStride"), d.scales)
		fn.I("ADDQ", d.args.Field("decoding_dstStride"), d.dst)
	})
	d.finish(d.least, d.most)
}

// decodeAcrossAVX2 decodes rows that are adjacent in memory, as are their scales.
func decodeAcrossAVX2(f *asmgen.File, format halfFormat) {
	d := newHalfDecoding(f, format, "Across", fmt.Sprintf(" decodes %d codes that are adjacent across k, at each of rows (> 0) steps of k.", lanesAVX2))
	fn, steps := d.fn, d.fn.GP()
	first, second := d.factors[0], d.factors[1]
	least, most := d.least.X(), d.most.X()
	next, whole := fn.Label("next"), fn.Label("whole")
	fn.Place(next)
	fn.I("VMOVUPS", d.scales.At(0), first.X())
	fn.I("VPMINUB", first.X(), least, least)
	fn.I("VPMAXUB", first.X(), most, most)
	d.adjusted(first)
	fn.I("VPSRLDQ", asmgen.Imm(8), first.X(), second.X())
	for _, v := range d.factors {
		fn.I("VPMOVZXBD", v.X(), v)
		fn.I("VPSLLD", asmgen.Imm(23), v, v)
	}
	fn.I("MOVQ", asmgen.Imm(32), steps)
	fn.I("CMPQ", d.rows, steps)
	fn.I("JGE", whole)
	fn.I("MOVQ", d.rows, steps)
	fn.Place(whole)
	fn.I("SUBQ", steps, d.rows)
	fn.CountDown(steps, func() {
		d.group(d.codes.At(0), d.dst.At(0), first, second)
		fn.I("ADDQ", d.args.Field("decoding_codeStride"), d.codes)
		fn.I("ADDQ", d.args.Field("decoding_dstStride"), d.dst)
	})
	fn.I("ADDQ", d.args.Field("decoding_scaleStride"), d.scales)
	fn.I("TESTQ", d.rows, d.rows)
	fn.I("JNZ", next)
	d.finish(least, most)
}
