package main

// Decoding 8-bit floating-point codes to BF16. A normal code has its bits in the order of BF16.
// Linear maps of them (GF2P8AFFINEQB) give the two bytes of a BF16 with the code's own exponent. An
// addition then applies BF16's bias and the scale.
//
// Other codes are rare: they are zero, subnormal or not finite. Where one occurs, two tables of 128
// bytes give the bytes of the value times 2^t instead. A saturating subtraction from the exponent
// applies the scale and leaves zeros unchanged.

import "spmoe/tensor/asmgen"

func decodeAVX512(f *asmgen.File) {
	c := decoderConstants(f)
	decodeAlong(f, c, twiceData(f))
	decodeAcross(f, c)
}

// decoderData holds constants.
type decoderData struct {
	order     asmgen.Mem // order of quadwords for which unpacking leaves codes in order
	magnitude asmgen.Mem // 0x7f in all bytes
}

func decoderConstants(f *asmgen.File) decoderData {
	return decoderData{f.Data32("order", 0, 0, 4, 0, 1, 0, 5, 0, 2, 0, 6, 0, 3, 0, 7, 0), f.Data32("magnitude", 0x7f7f7f7f)}
}

// twiceData returns the indices that copy byte i to both words of dword i.
func twiceData(f *asmgen.File) asmgen.Mem {
	var twice []byte
	for i := range byte(16) {
		twice = append(twice, i, i, i, i)
	}
	return f.Data("twice", twice)
}

// decoder holds what decoding keeps in registers.
type decoder struct {
	fn                           *asmgen.Func
	data                         decoderData
	permute                      string // VPERMQ or VPERMB: puts codes in order
	order                        asmgen.Vec
	lowBits, highBits, otherBits asmgen.Vec
	// The largest result of otherBits for codes that are not normal. For normal codes it is larger.
	mostOther  asmgen.Vec
	met        asmgen.Vec // the smallest result so far
	bias, temp asmgen.Vec
	bad        asmgen.Mem // bit 0 of some byte is set: a code was infinite or NaN
}

// otherMask is the register for the mask of codes that are not normal.
const otherMask = asmgen.Mask(3)

func newDecoder(fn *asmgen.Func, lookup asmgen.Reg, data decoderData, permute string, order, bad asmgen.Mem) *decoder {
	d := &decoder{fn: fn, data: data, permute: permute, order: fn.Z(), lowBits: fn.Z(), highBits: fn.Z(), otherBits: fn.Z(), mostOther: fn.Z(), met: fn.Z(),
		bias: fn.Z(), temp: fn.Z(), bad: bad}
	fn.I("VMOVUPS", order, d.order)
	fn.I("VPBROADCASTQ", lookup.Field("lookup_lowBits"), d.lowBits)
	fn.I("VPBROADCASTQ", lookup.Field("lookup_highBits"), d.highBits)
	fn.I("VPBROADCASTQ", lookup.Field("lookup_otherBits"), d.otherBits)
	fn.I("VPBROADCASTB", lookup.Field("lookup_mostOther"), d.mostOther)
	fn.I("VPBROADCASTD", lookup.Field("lookup_bias"), d.bias)
	return d
}

// normal decodes 64 codes if all are normal. One vector holds codes 0 to 31, the other 32 to 63.
// Their exponents still lack bias and scale. If first, met is set to the results of otherBits;
// otherwise it becomes the minimum of both.
func (d *decoder) normal(codes asmgen.Operand, first bool, low, high asmgen.Vec) {
	fn, met := d.fn, low
	fn.I(d.permute, codes, d.order, low)
	fn.I("VGF2P8AFFINEQB", asmgen.Imm(0), d.lowBits, low, d.temp)
	fn.I("VGF2P8AFFINEQB", asmgen.Imm(0), d.highBits, low, high)
	if first {
		met = d.met
	}
	fn.I("VGF2P8AFFINEQB", asmgen.Imm(0), d.otherBits, low, met)
	if !first {
		fn.I("VPMINUB", met, d.met, d.met)
	}
	fn.I("VPUNPCKLBW", high, d.temp, low)
	fn.I("VPUNPCKHBW", high, d.temp, high)
}

// otherwise runs body if met shows a code that is not normal. The code of body is out of line.
func (d *decoder) otherwise(body func()) {
	fn, other, done := d.fn, d.fn.Label("other"), d.fn.Label("normal")
	fn.I("VPCMPUB", asmgen.Imm(2), d.mostOther, d.met, otherMask) // less or equal
	fn.I("KORTESTQ", otherMask, otherMask)
	fn.I("JNZ", other)
	fn.Place(done)
	fn.Aside(other, done, body)
}

// lookUp decodes any 64 codes. steps holds the exponent increments that normal leaves to be added,
// as words. For a nonzero code, the high byte of the table entry has the sign bit set. An AND with
// the code's own sign bit leaves the right sign, and none for zero.
func (d *decoder) lookUp(lookup asmgen.Reg, codes asmgen.Operand, steps [2]asmgen.Operand, low, high asmgen.Vec) {
	fn, bytes := d.fn, d.met
	fn.I(d.permute, codes, d.order, low)
	lookUpBytes(fn, lookup, "lookup_codeTables", low, bytes, high, d.temp)
	fn.I("VPTERNLOGD.BCST", asmgen.Imm(0xe0), d.data.magnitude, low, high)
	fn.I("VPORD", d.bad, bytes, d.temp)
	fn.I("VMOVUPS", d.temp, d.bad)
	fn.I("VPUNPCKLBW", high, bytes, low)
	fn.I("VPUNPCKHBW", high, bytes, high)
	for i, v := range []asmgen.Vec{low, high} {
		fn.I("VPBROADCASTD", lookup.Field("lookup_top"), d.temp)
		if m, ok := steps[i].(asmgen.Mem); ok {
			fn.I("VPBROADCASTD", m, bytes)
			steps[i] = bytes
		}
		fn.I("VPSUBW", steps[i], d.temp, d.temp)
		fn.I("VPSUBUSW", d.temp, v, v)
	}
}

// lookUpBytes sets low and high to the bytes that a codeTables has for codes. The codeTables is
// field in of the struct at tables. temp is overwritten.
func lookUpBytes(fn *asmgen.Func, tables asmgen.Reg, in asmgen.Field, codes, low, high, temp asmgen.Vec) {
	for _, table := range []struct {
		v  asmgen.Vec
		at asmgen.Field
	}{{low, in + "+codeTables_low"}, {high, in + "+codeTables_high"}} {
		fn.I("VMOVDQA64", codes, table.v)
		fn.I("VMOVUPS", tables.Field(table.at), temp)
		fn.I("VPERMI2B", tables.Field(table.at).Plus(64), temp, table.v)
	}
}

// takeBlock takes the steps of a block of 32 from those left, or fewer at the end.
func takeBlock(fn *asmgen.Func, left, steps asmgen.Reg) {
	whole := fn.Label("whole")
	fn.I("MOVQ", asmgen.Imm(32), steps)
	fn.I("CMPQ", left, steps)
	fn.I("JGE", whole)
	fn.I("MOVQ", left, steps)
	fn.Place(whole)
	fn.I("SUBQ", steps, left)
}

// decoding is the common part of functions that decode.
type decoding struct {
	*decoder
	args, dst, codes, scales, from, to, rows, n asmgen.Reg
	// The scale 1 in all bytes; the smallest and largest scale so far.
	one, least, most     asmgen.Vec
	first, second, other asmgen.Vec
}

func newDecoding(f *asmgen.File, name, doc string, data decoderData, more ...asmgen.Param) *decoding {
	fn := f.Func(name, name+doc+"\nIt writes whole groups of 64. It records scales in min and max, and codes that are not finite in bad.", append([]asmgen.Param{asmgen.Arg("d", "*decoding")}, more...)...)
	args := fn.Load("d")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", args.Field(at), r); return r }
	d := &decoding{args: args, dst: field("decoding_dst"), codes: field("decoding_codes"), scales: field("decoding_scales"), rows: field("decoding_rows"),
		from: fn.GP(), to: fn.GP(), n: fn.GP()}
	fn.I("KMOVQ", args.Field("decoding_scaleMask"), asmgen.K(1))
	fn.I("KMOVQ", args.Field("decoding_tailMask"), asmgen.K(2))
	fn.I("MOVQ", args.Field("decoding_lookup"), d.n)
	d.decoder = newDecoder(fn, d.n, data, "VPERMQ", data.order, args.Field("decoding_notes+notes_bad"))
	d.one, d.least, d.most = fn.Z(), fn.Z(), fn.Z()
	d.first, d.second, d.other = fn.Z(), fn.Z(), fn.Z()
	fn.I("VPBROADCASTD", data.magnitude, d.one)
	fn.I("VMOVUPS", args.Field("decoding_notes+notes_min"), d.least)
	fn.I("VMOVUPS", args.Field("decoding_notes+notes_max"), d.most)
	return d
}

func (d *decoding) finish() {
	d.fn.I("VMOVUPS", d.least, d.args.Field("decoding_notes+notes_min"))
	d.fn.I("VMOVUPS", d.most, d.args.Field("decoding_notes+notes_max"))
	d.fn.Return()
}

// note loads the scales in K1 into temp, with 1 in the other lanes.
func (d *decoding) note() {
	d.fn.I("VMOVDQA64", d.one, d.temp)
	d.fn.I("VMOVDQU8", d.scales.At(0), asmgen.K(1), d.temp)
	d.fn.I("VPMINUB", d.temp, d.least, d.least)
	d.fn.I("VPMAXUB", d.temp, d.most, d.most)
}

// withLookup runs body with lookup in the register of codes. It saves and restores codes, since
// registers are short.
func (d *decoding) withLookup(body func(lookup asmgen.Reg)) {
	d.fn.I("MOVQ", d.codes, d.args.Field("decoding_codes"))
	d.fn.I("MOVQ", d.args.Field("decoding_lookup"), d.codes)
	body(d.codes)
	d.fn.I("MOVQ", d.args.Field("decoding_codes"), d.codes)
}

func (d *decoding) store() {
	d.fn.I("VMOVUPS", d.first, d.to.At(0))
	d.fn.I("VMOVUPS", d.second, d.to.At(64))
}

// rowDecoding decodes rows whose codes and scales are contiguous along k.
type rowDecoding struct {
	*decoding
	twice asmgen.Vec
	step  asmgen.Reg // address of a row's exponent increments
}

// wordsLow is the register for the mask of the low bytes of words.
const wordsLow = asmgen.Mask(4)

func newRowDecoding(d *decoding, twice asmgen.Mem) rowDecoding {
	r := rowDecoding{d, d.fn.Z(), d.fn.GP()}
	d.fn.I("VMOVUPS", twice, r.twice)
	d.fn.I("MOVQ", asmgen.Imm(0x5555_5555_5555_5555), r.step)
	d.fn.I("KMOVQ", r.step, wordsLow)
	return r
}

// power notes the scales of a row. For every block it stores at to the increment for the exponents
// of two codes.
func (d *rowDecoding) power(to asmgen.Mem) {
	d.note()
	d.fn.I("VPERMB.Z", d.temp, d.twice, wordsLow, d.other)
	d.fn.I("VPSLLW", asmgen.Imm(7), d.other, d.other)
	d.fn.I("VPSUBW", d.bias, d.other, d.other)
	d.fn.I("VMOVUPS", d.other, to)
}

// row decodes a row into adjacent groups of 64.
func (d *rowDecoding) row() {
	fn := d.fn
	tail, done := fn.Label("tail"), fn.Label("done")
	d.power(d.args.Field("decoding_steps"))
	steps := [2]asmgen.Operand{d.step.At(0), d.step.At(4)}
	groups := func(group func()) {
		fn.I("LEAQ", d.args.Field("decoding_steps"), d.step)
		fn.I("MOVQ", d.args.Field("decoding_count"), d.n)
		fn.I("SHRQ", asmgen.Imm(6), d.n)
		fn.I("JZ", tail)
		fn.CountDown(d.n, func() {
			group()
			d.store()
			fn.I("ADDQ", asmgen.Imm(64), d.from)
			fn.I("ADDQ", asmgen.Imm(128), d.to)
			fn.I("ADDQ", asmgen.Imm(8), d.step)
		})
	}
	fn.I("VPTERNLOGD", asmgen.Imm(0xff), d.met, d.met, d.met)
	fn.I("MOVQ", d.codes, d.from)
	groups(func() {
		d.normal(d.from.At(0), false, d.first, d.second)
		fn.I("VPADDD.BCST", steps[0], d.first, d.first)
		fn.I("VPADDD.BCST", steps[1], d.second, d.second)
	})
	d.otherwise(func() { // the whole row once more
		fn.I("MOVQ", d.args.Field("decoding_count"), d.n)
		fn.I("SHRQ", asmgen.Imm(6), d.n)
		fn.I("SHLQ", asmgen.Imm(7), d.n)
		fn.I("SUBQ", d.n, d.to)
		fn.I("MOVQ", d.codes, d.from)
		d.withLookup(func(lookup asmgen.Reg) {
			groups(func() { d.lookUp(lookup, d.from.At(0), steps, d.first, d.second) })
		})
	})
	fn.Place(tail)
	fn.I("TESTQ", asmgen.Imm(63), d.args.Field("decoding_count"))
	fn.I("JZ", done)
	fn.I("VMOVDQU8.Z", d.from.At(0), asmgen.K(2), d.other)
	d.withLookup(func(lookup asmgen.Reg) { d.lookUp(lookup, d.other, steps, d.first, d.second) })
	d.store()
	fn.Place(done)
	fn.I("ADDQ", d.args.Field("decoding_codeStride"), d.codes)
	fn.I("ADDQ", d.args.Field("decoding_scaleStride"), d.scales)
}

func decodeAlong(f *asmgen.File, data decoderData, twice asmgen.Mem) {
	d := newDecoding(f, "decodeAlongAVX512", " decodes rows (> 0) rows of count (1 to 512) codes each, contiguous along k.", data)
	r := newRowDecoding(d, twice)
	d.fn.CountDown(d.rows, func() {
		d.fn.I("MOVQ", d.dst, d.to)
		r.row()
		d.fn.I("ADDQ", d.args.Field("decoding_dstStride"), d.dst)
	})
	d.finish()
}

// decodeAcross decodes rows that are adjacent in memory, as are their scales.
func decodeAcross(f *asmgen.File, data decoderData) {
	d := newDecoding(f, "decodeAcrossAVX512", " decodes up to 64 codes that are adjacent across k, masked by tailMask, at each of rows (> 0) steps of k.", data)
	fn, steps := d.fn, d.fn.GP()
	scales := fn.Zs(2)
	words := [2]asmgen.Operand{scales[0], scales[1]}
	next := fn.Label("next")
	fn.Place(next)
	d.note()
	fn.I("VEXTRACTI64X4", asmgen.Imm(1), d.temp, d.first.Y())
	fn.I("VPMOVZXBW", d.temp.Y(), scales[0])
	fn.I("VPMOVZXBW", d.first.Y(), scales[1])
	for _, v := range scales {
		fn.I("VPSLLW", asmgen.Imm(7), v, v)
		fn.I("VPSUBW", d.bias, v, v)
	}
	takeBlock(fn, d.rows, steps)
	fn.CountDown(steps, func() {
		fn.I("VMOVDQU8.Z", d.codes.At(0), asmgen.K(2), d.other)
		d.normal(d.other, true, d.first, d.second)
		fn.I("VPADDW", scales[0], d.first, d.first)
		fn.I("VPADDW", scales[1], d.second, d.second)
		d.otherwise(func() {
			d.withLookup(func(lookup asmgen.Reg) { d.lookUp(lookup, d.other, words, d.first, d.second) })
		})
		fn.I("VMOVUPS", d.first, d.dst.At(0))
		fn.I("VMOVUPS", d.second, d.dst.At(64))
		fn.I("ADDQ", d.args.Field("decoding_codeStride"), d.codes)
		fn.I("ADDQ", d.args.Field("decoding_dstStride"), d.dst)
	})
	fn.I("ADDQ", d.args.Field("decoding_scaleStride"), d.scales)
	fn.I("TESTQ", d.rows, d.rows)
	fn.I("JNZ", next)
	d.finish()
}
