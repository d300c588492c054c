package main

// Column panels for tiles, of rows of b that are neighbours in memory: of 32 columns the two elements of every pair of k side by side.

import "spmoe/tensor/asmgen"

func acrossAMX(f *asmgen.File) {
	order, magnitude := decoderData(f)
	acrossBF16Panel(f, order)
	acrossCodesPanel(f, order, magnitude)
}

func newTilesPanel(f *asmgen.File, name, doc string) acrossPanel {
	return newAcrossPanel(f.Func(name, name+doc+" k (> 0) steps of 32 rows of b that are neighbours in memory; an odd last one is paired with zeros.",
		asmgen.Arg("p", "*columnPanel")))
}

// pairs calls body for all pairs of n steps, and last for a step that is left. For each pair it fetches some lines.
func (p *acrossPanel) pairs(n asmgen.Reg, lines int, body, last func()) {
	fn := p.fn
	odd, rest, done := fn.GP(), fn.Label("rest"), fn.Label("done")
	fn.I("MOVQ", n, odd)
	fn.I("SHRQ", asmgen.Imm(1), n)
	fn.I("JZ", rest)
	fn.CountDown(n, func() {
		body()
		for range lines {
			p.fetchLine()
		}
		fn.I("LEAQ", p.src.At(0).Index(p.stride, 2), p.src)
		fn.I("ADDQ", asmgen.Imm(columnStep), p.dst)
	})
	fn.Place(rest)
	fn.I("TESTQ", asmgen.Imm(1), odd)
	fn.I("JZ", done)
	last()
	fn.Place(done)
	fn.Free(odd)
}

func acrossBF16Panel(f *asmgen.File, order asmgen.Mem) {
	p := newTilesPanel(f, "acrossBF16PanelAVX512", " interleaves")
	fn := p.fn
	rows, low, by := fn.Zs(2), fn.Z(), fn.Z()
	fn.I("VMOVUPS", order, by)
	interleave := func() {
		fn.I("VPUNPCKLWD", rows[1], rows[0], low)
		fn.I("VPUNPCKHWD", rows[1], rows[0], rows[0])
		fn.I("VMOVUPS", low, p.dst.At(0))
		fn.I("VMOVUPS", rows[0], p.dst.At(64))
	}
	p.pairs(p.field(columnPanelK), 2, func() {
		fn.I("VPERMQ", p.src.At(0), by, rows[0])
		fn.I("VPERMQ", p.src.At(0).Index(p.stride, 1), by, rows[1])
		interleave()
	}, func() {
		fn.I("VPERMQ", p.src.At(0), by, rows[0])
		fn.I("VPXORD", rows[1], rows[1], rows[1])
		interleave()
	})
	p.finish()
}

// acrossCodesPanel decodes by tables, as decode.go does.
func acrossCodesPanel(f *asmgen.File, order, magnitude asmgen.Mem) {
	const name = "acrossCodesPanelAVX512"
	p := newTilesPanel(f, name, " decodes")
	fn, t := p.fn, p.t
	scales, left, steps := p.field(columnPanelScales), p.field(columnPanelK), fn.GP()
	fn.I("MOVQ", t.At(columnPanelLookup), steps)
	d := newDecoder(fn, steps, order, magnitude)
	var pairs []byte // the order of codes of two steps, side by side, such that unpacking leaves pairs in order
	for _, quad := range []byte{0, 4, 1, 5, 2, 6, 3, 7} {
		for i := range byte(4) {
			pairs = append(pairs, 4*quad+i, 32+4*quad+i)
		}
	}
	fn.I("VMOVUPS", f.Data(name+"Pairs", pairs), d.order)
	top, codes, first, second := fn.Z(), fn.Z(), fn.Z(), fn.Z()
	less := [2]asmgen.Vec{fn.Z(), fn.Z()}
	least, most, spare := fn.Z().Y(), fn.Z().Y(), fn.Z()
	fn.I("VPBROADCASTD", steps.At(lookupTop), top)
	fn.I("VMOVUPS", t.At(columnPanelBad), d.bad)
	fn.I("VMOVDQU64", t.At(columnPanelMin), least)
	fn.I("VMOVDQU64", t.At(columnPanelMax), most)
	decode := func() {
		d.scaled("VPERMB", codes, first, second, less)
		fn.I("VMOVUPS", first, p.dst.At(0))
		fn.I("VMOVUPS", second, p.dst.At(64))
	}
	block := fn.Label("block")
	fn.Place(block)
	fn.I("VMOVDQU64", scales.At(0), spare.Y())
	fn.I("VPMINUB", spare.Y(), least, least)
	fn.I("VPMAXUB", spare.Y(), most, most)
	for j, v := range less {
		fn.I("VPMOVZXBD", scales.At(16*j), v)
		exponents(fn, v, spare)
		fn.I("VPSUBW", v, top, v)
	}
	fn.I("ADDQ", t.At(columnPanelScaleStride), scales)
	takeBlock(fn, left, steps)
	p.pairs(steps, 1, func() {
		fn.I("VMOVDQU64", p.src.At(0), codes.Y())
		fn.I("VINSERTI64X4", asmgen.Imm(1), p.src.At(0).Index(p.stride, 1), codes, codes)
		decode()
	}, func() {
		fn.I("VMOVDQU64", p.src.At(0), codes.Y())
		decode()
	})
	fn.I("TESTQ", left, left)
	fn.I("JNZ", block)
	fn.I("VMOVUPS", d.bad, t.At(columnPanelBad))
	fn.I("VMOVDQU64", least, t.At(columnPanelMin))
	fn.I("VMOVDQU64", most, t.At(columnPanelMax))
	p.finish()
}
