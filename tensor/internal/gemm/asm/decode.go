package main

// Decoding 8-bit floating-point codes to BF16: two tables of 128 bytes give the halves of the value times 2^t, with subnormal
// codes normalised, and a saturating subtraction in the exponent applies the scale and leaves zeros alone.

import "spmoe/tensor/asmgen"

// The fields of Go's struct decoding, in its order.
const (
	decodeDst = 8 * iota
	decodeCodes
	decodeScales
	decodeLookup
	decodeDstStride
	decodeCodeStride
	decodeScaleStride
	decodeRows
	decodeCount
	decodeScaleMask
	decodeTailMask
	decodeAhead
	decodeMin
	decodeMax  = decodeMin + 64
	decodeBad  = decodeMax + 64
	decodeStep = decodeBad + 64
)

// The fields of Go's struct lookup.
const (
	lookupHigh = 0
	lookupLow  = 128
	lookupTop  = 256
)

func decodeAVX512(f *asmgen.File) {
	order, ones := decoderData(f)
	decodeAlong(f, order, ones)
	decodeAcross(f, order, ones)
	int8DecodeAlong(f)
	int8DecodeAcross(f)
}

// decoder holds what decoding keeps in registers.
type decoder struct {
	fn        *asmgen.Func
	high, low []asmgen.Vec // the tables
	magnitude asmgen.Vec   // 0x7f in every byte
	order     asmgen.Vec   // of quadwords or bytes, such that unpacking leaves codes in order
	bad       asmgen.Vec   // bit 0 of some byte: a code was infinite or NaN
	temp      asmgen.Vec
}

func decoderData(f *asmgen.File) (order, magnitude asmgen.Mem) {
	return f.Data32("order", 0, 0, 4, 0, 1, 0, 5, 0, 2, 0, 6, 0, 3, 0, 7, 0), f.Data32("magnitude", 0x7f7f7f7f)
}

func newDecoder(fn *asmgen.Func, tables asmgen.Reg, order, magnitude asmgen.Mem) *decoder {
	d := &decoder{fn: fn, high: fn.Zs(2), low: fn.Zs(2), magnitude: fn.Z(), order: fn.Z(), bad: fn.Z(), temp: fn.Z()}
	for i := range 2 {
		fn.I("VMOVUPS", tables.At(lookupHigh+64*i), d.high[i])
		fn.I("VMOVUPS", tables.At(lookupLow+64*i), d.low[i])
	}
	fn.I("VPBROADCASTD", magnitude, d.magnitude)
	fn.I("VMOVUPS", order, d.order)
	return d
}

// unscaled decodes 64 codes, permuted, into two vectors of BF16 times 2^t: codes 0 to 31, 32 to 63. The entry of a code that is not zero has the
// sign bit set in its high byte, so that a conjunction with the code's own leaves the right sign, and none to zero.
func (d *decoder) unscaled(permute string, codes asmgen.Operand, first, second asmgen.Vec) {
	low := d.temp
	d.fn.I(permute, codes, d.order, first)
	d.fn.I("VMOVDQA64", first, low)
	d.fn.I("VMOVDQA64", first, second)
	d.fn.I("VPERMI2B", d.low[1], d.low[0], low)
	d.fn.I("VPERMI2B", d.high[1], d.high[0], second)
	d.fn.I("VPTERNLOGD", asmgen.Imm(0xe0), d.magnitude, first, second)
	d.fn.I("VPORD", low, d.bad, d.bad)
	d.fn.I("VPUNPCKLBW", second, low, first)
	d.fn.I("VPUNPCKHBW", second, low, second)
}

// scaled is unscaled with the scales applied; steps holds what to subtract from the exponents, as words.
func (d *decoder) scaled(permute string, codes asmgen.Operand, first, second asmgen.Vec, steps [2]asmgen.Vec) {
	d.unscaled(permute, codes, first, second)
	d.fn.I("VPSUBUSW", steps[0], first, first)
	d.fn.I("VPSUBUSW", steps[1], second, second)
}

// stepsOfRow turns up to 16 scales of a row, those in mask, into dwords of two such words each.
func (d *decoder) stepsOfRow(scales asmgen.Mem, mask asmgen.Mask, top asmgen.Vec, least, most asmgen.Mem, steps asmgen.Vec) {
	d.note(scales, mask, least, most, steps)
	d.fn.I("VPMOVZXBD", d.temp.X(), steps)
	exponents(d.fn, steps, d.temp)
	d.fn.I("VPSUBW", steps, top, steps)
}

// exponents puts scales, one in each dword, where the exponents of two BF16 are. temp is overwritten.
func exponents(fn *asmgen.Func, scales, temp asmgen.Vec) {
	fn.I("VPSLLD", asmgen.Imm(7), scales, scales)
	fn.I("VPSLLD", asmgen.Imm(16), scales, temp)
	fn.I("VPORD", temp, scales, scales)
}

// takeBlock takes the steps of a block of 32, or fewer at the end, from those left.
func takeBlock(fn *asmgen.Func, left, steps asmgen.Reg) {
	whole := fn.Label("whole")
	fn.I("MOVQ", asmgen.Imm(32), steps)
	fn.I("CMPQ", left, steps)
	fn.I("JGE", whole)
	fn.I("MOVQ", left, steps)
	fn.Place(whole)
	fn.I("SUBQ", steps, left)
}

// note loads the scales in mask into temp, 127 in the place of others, and their least and most into memory.
func (d *decoder) note(scales asmgen.Mem, mask asmgen.Mask, least, most asmgen.Mem, spare asmgen.Vec) {
	d.fn.I("VMOVDQA64", d.magnitude, d.temp)
	d.fn.I("VMOVDQU8", scales, mask, d.temp)
	d.fn.I("VPMINUB", least, d.temp, spare)
	d.fn.I("VMOVUPS", spare, least)
	d.fn.I("VPMAXUB", most, d.temp, spare)
	d.fn.I("VMOVUPS", spare, most)
}

// decoding is what functions that decode have in common.
type decoding struct {
	*decoder
	args, dst, codes, scales, from, to, rows, n asmgen.Reg
	top, first, second, other                   asmgen.Vec
	steps                                       [2]asmgen.Vec
}

func newDecoding(f *asmgen.File, name, doc string, order, magnitude asmgen.Mem, more ...asmgen.Param) *decoding {
	fn := f.Func(name, name+doc+"\nIt writes whole groups of 64 and notes in min, max and bad what it met.", append([]asmgen.Param{asmgen.Arg("d", "*decoding")}, more...)...)
	args := fn.Load("d")
	field := func(at int) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", args.At(at), r); return r }
	d := &decoding{args: args, dst: field(decodeDst), codes: field(decodeCodes), scales: field(decodeScales), rows: field(decodeRows),
		from: fn.GP(), to: fn.GP(), n: fn.GP()}
	fn.I("KMOVQ", args.At(decodeScaleMask), asmgen.K(1))
	fn.I("KMOVQ", args.At(decodeTailMask), asmgen.K(2))
	fn.I("MOVQ", args.At(decodeLookup), d.n)
	d.decoder = newDecoder(fn, d.n, order, magnitude)
	d.top, d.first, d.second, d.other = fn.Z(), fn.Z(), fn.Z(), fn.Z()
	d.steps = [2]asmgen.Vec{fn.Z(), fn.Z()}
	fn.I("VPBROADCASTD", d.n.At(lookupTop), d.top)
	fn.I("VMOVUPS", args.At(decodeBad), d.bad)
	return d
}

func (d *decoding) finish() {
	d.fn.I("VMOVUPS", d.bad, d.args.At(decodeBad))
	d.fn.Return()
}

func (d *decoding) store() {
	d.fn.I("VMOVUPS", d.first, d.to.At(0))
	d.fn.I("VMOVUPS", d.second, d.to.At(64))
}

// rowDecoding is decoding of rows that are contiguous along k, as their scales are.
type rowDecoding struct {
	*decoding
	step asmgen.Reg // where a row's exponents are
}

// row decodes a row, whose groups of 64 will be apart bytes apart. It calls meanwhile, which may be nil, before each whole one.
func (d *rowDecoding) row(apart int, meanwhile func()) {
	fn := d.fn
	group := func(codes asmgen.Operand) {
		fn.I("VPBROADCASTD", d.step.At(0), d.steps[0])
		fn.I("VPBROADCASTD", d.step.At(4), d.steps[1])
		d.scaled("VPERMQ", codes, d.first, d.second, d.steps)
		d.store()
	}
	tail, done := fn.Label("tail"), fn.Label("done")
	d.stepsOfRow(d.scales.At(0), asmgen.K(1), d.top, d.args.At(decodeMin), d.args.At(decodeMax), d.other)
	fn.I("VMOVUPS", d.other, d.args.At(decodeStep))
	fn.I("LEAQ", d.args.At(decodeStep), d.step)
	fn.I("MOVQ", d.codes, d.from)
	fn.I("MOVQ", d.args.At(decodeCount), d.n)
	fn.I("SHRQ", asmgen.Imm(6), d.n)
	fn.I("JZ", tail)
	fn.CountDown(d.n, func() {
		if meanwhile != nil {
			meanwhile()
		}
		group(d.from.At(0))
		fn.I("ADDQ", asmgen.Imm(64), d.from)
		fn.I("ADDQ", asmgen.Imm(apart), d.to)
		fn.I("ADDQ", asmgen.Imm(8), d.step)
	})
	fn.Place(tail)
	fn.I("TESTQ", asmgen.Imm(63), d.args.At(decodeCount))
	fn.I("JZ", done)
	fn.I("VMOVDQU8.Z", d.from.At(0), asmgen.K(2), d.other)
	group(d.other)
	fn.Place(done)
	fn.I("ADDQ", d.args.At(decodeCodeStride), d.codes)
	fn.I("ADDQ", d.args.At(decodeScaleStride), d.scales)
}

func decodeAlong(f *asmgen.File, order, magnitude asmgen.Mem) {
	d := newDecoding(f, "decodeAlongAVX512", " decodes rows (> 0) rows of count (1 to 512) codes each, contiguous along k.", order, magnitude)
	r := rowDecoding{d, d.fn.GP()}
	d.fn.CountDown(d.rows, func() {
		d.fn.I("MOVQ", d.dst, d.to)
		r.row(128, nil)
		d.fn.I("ADDQ", d.args.At(decodeDstStride), d.dst)
	})
	d.finish()
}

// decodeAcross decodes rows that are neighbours in memory, as their scales are.
func decodeAcross(f *asmgen.File, order, magnitude asmgen.Mem) {
	d := newDecoding(f, "decodeAcrossAVX512", " decodes up to 64 codes that are neighbours across k, those in tailMask, at each of rows (> 0) steps of k.", order, magnitude)
	fn, steps := d.fn, d.fn.GP()
	next := fn.Label("next")
	fn.Place(next)
	d.note(d.scales.At(0), asmgen.K(1), d.args.At(decodeMin), d.args.At(decodeMax), d.first)
	fn.I("VEXTRACTI64X4", asmgen.Imm(1), d.temp, d.first.Y())
	fn.I("VPMOVZXBW", d.temp.Y(), d.steps[0])
	fn.I("VPMOVZXBW", d.first.Y(), d.steps[1])
	for _, v := range d.steps {
		fn.I("VPSLLW", asmgen.Imm(7), v, v)
		fn.I("VPSUBW", v, d.top, v)
	}
	takeBlock(fn, d.rows, steps)
	fn.CountDown(steps, func() {
		fn.I("VMOVDQU8.Z", d.codes.At(0), asmgen.K(2), d.other)
		d.scaled("VPERMQ", d.other, d.first, d.second, d.steps)
		fn.I("VMOVUPS", d.first, d.dst.At(0))
		fn.I("VMOVUPS", d.second, d.dst.At(64))
		fn.I("ADDQ", d.args.At(decodeCodeStride), d.codes)
		fn.I("ADDQ", d.args.At(decodeDstStride), d.dst)
	})
	fn.I("ADDQ", d.args.At(decodeScaleStride), d.scales)
	fn.I("TESTQ", d.rows, d.rows)
	fn.I("JNZ", next)
	d.finish()
}
