package main

// Column panels of MXINT8 for products with few rows of a. They hold a run along k of 32 rows of b,
// as records of words. The next run is prefetched.

import "spmoe/tensor/asmgen"

const wordStep = 4 * 32 // bytes between steps of a column panel

// wordPanel is the state of such a function.
type wordPanel struct {
	fn                                *asmgen.Func
	t, dst, src, stride, scales, left asmgen.Reg
	least, most                       asmgen.Vec // of the scales
	// The amount subtracted from scales for the 1/64 of both operands. It is in every byte.
	less asmgen.Vec
}

func newWordPanel(fn *asmgen.Func, t, dst, src, stride asmgen.Reg, take func(*asmgen.Func) asmgen.Vec) *wordPanel {
	p := &wordPanel{fn: fn, t: t, dst: dst, src: src, stride: stride, scales: fn.GP(), left: fn.GP(), least: take(fn), most: take(fn), less: take(fn)}
	fn.I("MOVQ", t.Field("columnPanel_scales"), p.scales)
	fn.I("VMOVDQU", t.Field("columnPanel_notes+notes_min"), p.least)
	fn.I("VMOVDQU", t.Field("columnPanel_notes+notes_max"), p.most)
	fn.I("MOVQ", asmgen.Imm(12), p.left)
	fn.I("VMOVQ", p.left, p.less.X())
	fn.I("VPBROADCASTB", p.less.X(), p.less)
	return p
}

// blocks runs do for every block of k.
func (p *wordPanel) blocks(do func()) {
	p.fn.I("MOVQ", p.t.Field("columnPanel_k"), p.left)
	p.fn.I("SHRQ", asmgen.Imm(5), p.left)
	p.fn.CountDown(p.left, do)
}

// note notes scales and reduces them.
func (p *wordPanel) note(scales asmgen.Vec) {
	p.fn.I("VPMINUB", scales, p.least, p.least)
	p.fn.I("VPMAXUB", scales, p.most, p.most)
	p.fn.I("VPSUBUSB", p.less, scales, scales)
}

// putScales stores the first 8 of scales in the record as powers of two. They belong to columns i
// to i+7.
func (p *wordPanel) putScales(scales, v asmgen.Vec, i int) {
	p.fn.I("VPMOVZXBD", scales.X(), v)
	p.fn.I("VPSLLD", asmgen.Imm(23), v, v)
	p.fn.I("VMOVUPS", v, p.dst.At(wordStep*wordScales+4*i))
}

func (p *wordPanel) putNotes() {
	p.fn.I("VMOVDQU", p.least, p.t.Field("columnPanel_notes+notes_min"))
	p.fn.I("VMOVDQU", p.most, p.t.Field("columnPanel_notes+notes_max"))
}

// alongWordsAVX2 packs rows that are contiguous along k, 8 at a time. It transposes 4 by 4 dwords
// in both halves of vectors. One half has 16 codes of a row, and the other those of the row four
// further down. Only then does it convert the four codes of a dword to words. The two inner codes
// of a dword are swapped.
func alongWordsAVX2(f *asmgen.File) {
	const name = "alongWordsAVX2"
	fn := f.Func(name, name+" packs 32 rows of b, contiguous along k and p.stride bytes apart, for k (> 0) whole blocks. It prefetches the rows ahead bytes further on.",
		asmgen.Arg("p", "*columnPanel"))
	t := fn.Load("p")
	load := func(field asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", t.Field(field), r); return r }
	p := newWordPanel(fn, t, load("columnPanel_dst"), load("columnPanel_src"), load("columnPanel_stride"), func(fn *asmgen.Func) asmgen.Vec { return fn.Y().X() })
	fetch, r, moved := load("columnPanel_ahead"), fn.GP(), fn.GP()
	strides := newRowStrides(fn, p.stride)
	rows, spare, order, scales, none, v := fn.Ys(4), fn.Ys(4), fn.Y(), fn.Y().X(), fn.Y().X(), fn.Y()
	inner := make([]byte, 32)
	for i := range inner {
		inner[i] = byte(i%16/4*4 + [...]int{0, 2, 1, 3}[i%4])
	}
	fn.I("VMOVDQU", f.Data("innerOrder", inner), order)
	fn.I("VPBROADCASTD", f.Data32(name+"None", 0x7f7f7f7f), none)
	fn.I("ADDQ", p.src, fetch)
	fn.I("XORQ", moved, moved)
	next := fn.Label("next")
	fn.Place(next)
	p.blocks(func() {
		for i := range 8 {
			fn.I("PREFETCHT1", strides.row(fetch, i, 0))
		}
		for at := 0; at < 32; at += 16 {
			for i, v := range rows {
				fn.I("VMOVDQU", strides.row(p.src, i, at), v.X())
				fn.I("VINSERTI128", asmgen.Imm(1), strides.row(p.src, i+4, at), v, v)
				fn.I("VPSHUFB", order, v, v)
			}
			transposeDwords(fn, rows, spare)
			for i, v := range rows {
				to, first := p.dst.At(wordStep*(at/2+2*i)), spare[i]
				fn.I("VPSLLW", asmgen.Imm(8), v, first)
				fn.I("VPSRAW", asmgen.Imm(8), first, first)
				fn.I("VPSRAW", asmgen.Imm(8), v, v)
				fn.I("VMOVUPS", first, to)
				fn.I("VMOVUPS", v, to.Plus(wordStep))
			}
		}
		fn.I("MOVQ", p.scales, r)
		for i, from := range [8]asmgen.Vec{none, scales, scales, scales, scales, scales, scales, scales} {
			fn.I("VPINSRB", asmgen.Imm(int64(i)), r.At(0), from, scales)
			fn.I("ADDQ", t.Field("columnPanel_scaleStride"), r)
		}
		p.note(scales)
		p.putScales(scales, v, 0)
		fn.I("ADDQ", asmgen.Imm(32), p.src)
		fn.I("ADDQ", asmgen.Imm(32), fetch)
		fn.I("INCQ", p.scales)
		fn.I("ADDQ", asmgen.Imm(wordStep*wordSteps), p.dst)
	})
	fn.I("MOVQ", t.Field("columnPanel_k"), r)
	for _, to := range []asmgen.Reg{p.src, fetch} {
		fn.I("SUBQ", r, to)
		fn.I("LEAQ", to.At(0).Index(p.stride, 8), to)
	}
	fn.I("SHRQ", asmgen.Imm(5), r)
	fn.I("SUBQ", r, p.scales)
	fn.I("MOVQ", t.Field("columnPanel_scaleStride"), r)
	fn.I("LEAQ", p.scales.At(0).Index(r, 8), p.scales)
	fn.I("ADDQ", asmgen.Imm(32), moved)
	fn.I("MOVQ", t.Field("columnPanel_dst"), p.dst)
	fn.I("ADDQ", moved, p.dst)
	fn.I("CMPQ", moved, asmgen.Imm(wordStep))
	fn.I("JNE", next)
	p.putNotes()
	fn.Return()
}
