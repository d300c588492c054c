package main

// Products of MXINT8 by VPMADDWD. Codes are 16-bit words, and pairs of them are multiplied and
// added exactly.
//
// Panels hold records of 17 steps per block for each row or column: 16 steps of 2 codes, and the
// scale.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// The steps of a record for words.
const (
	wordCodes  = 16
	wordScales = 16
	wordSteps  = 17

	wordVectors = 4 // of columns
)

var wordTile = microkernel{prefix: "int8AVX2", rows: 3, width: 32, vecs: (*asmgen.Func).Ys}

func int8AVX2(f *asmgen.File) {
	f.Constant("wordSteps", wordSteps)
	for rows := 1; rows <= wordTile.rows; rows++ {
		wordTiles(f, rows)
	}
	wordPeak(f)
	wordsAlong(f, 4)
	wordsAlong(f, 8)
	for lanes := 1; lanes <= 8; lanes++ {
		wordsAcross(f, lanes)
	}
	wordsAcross(f, 16)
	wordScaling(f, 4)
	wordScaling(f, 8)
	alongWordsAVX2(f)
}

// wordTiles keeps a block's sums in registers. The sums of the previous blocks are in memory that
// the caller provides: there is no register left. Tiles are wide and low. A load that is part of a
// multiplication costs almost nothing, but broadcasting an element of a costs as much as an
// addition.
func wordTiles(f *asmgen.File, mr int) {
	k := wordTile
	name := fmt.Sprintf("%sTiles%d", k.prefix, mr)
	fn := f.Func(name, fmt.Sprintf("%s multiplies row panels of %d rows with one column panel. out has room for a tile of FP32.", name, mr), asmgen.Arg("t", "*tile"))
	t := fn.Load("t")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", t.Field(at), r); return r }
	panel, sum, sumStride, count, kept := field("tile_a"), field("tile_sum"), field("tile_sumStride"), field("tile_count"), field("tile_out")
	a, b, steps, row := fn.GP(), fn.GP(), fn.GP(), fn.GP()
	parts := make([][]asmgen.Vec, mr)
	for i := range parts {
		parts[i] = k.vecs(fn, wordVectors)
	}
	held, x, product := k.vecs(fn, 2), fn.Y(), fn.Y()
	keptAt := func(i, j int) asmgen.Mem { return kept.At(32 * (wordVectors*i + j)) }
	// step calls do for every vector of sums. It passes a vector of b, which may be in memory,
	// while x holds an element of a.
	step := func(step int, broadcast string, do func(i, j int, b asmgen.Operand)) {
		from := func(j int) asmgen.Mem { return b.At(32 * (wordVectors*step + j)) }
		for j, v := range held {
			fn.I("VMOVUPS", from(j), v)
		}
		for i := range parts {
			fn.I(broadcast, a.At(4*(step*mr+i)), x)
			for j := wordVectors - 1; j >= len(held); j-- {
				do(i, j, from(j))
			}
			for j, v := range held {
				do(i, j, v)
			}
		}
	}
	next := fn.Label("next")
	fn.Place(next)
	k.start(fn, t, sum, sumStride, sum, sumStride, row, parts)
	for i, p := range parts {
		for j, v := range p {
			fn.I("VMOVUPS", v, keptAt(i, j))
		}
	}
	fn.I("MOVQ", panel, a)
	fn.I("MOVQ", t.Field("tile_b"), b)
	fn.I("MOVQ", t.Field("tile_steps"), steps)
	block := fn.Label("block")
	fn.Align(64)
	fn.Place(block)
	step(0, "VPBROADCASTD", func(i, j int, b asmgen.Operand) { fn.I("VPMADDWD", b, x, parts[i][j]) })
	for s := 1; s < wordCodes; s++ {
		step(s, "VPBROADCASTD", func(i, j int, b asmgen.Operand) {
			fn.I("VPMADDWD", b, x, product)
			fn.I("VPADDD", product, parts[i][j], parts[i][j])
		})
	}
	step(wordScales, "VBROADCASTSS", func(i, j int, b asmgen.Operand) {
		v := parts[i][j]
		fn.I("VCVTDQ2PS", v, v)
		fn.I("VMULPS", b, v, v)
		fn.I("VFMADD213PS", keptAt(i, j), x, v)
		fn.I("VMOVUPS", v, keptAt(i, j))
	})
	fn.I("ADDQ", asmgen.Imm(4*wordSteps*int64(mr)), a)
	fn.I("ADDQ", asmgen.Imm(32*wordVectors*wordSteps), b)
	fn.I("SUBQ", asmgen.Imm(wordSteps), steps)
	fn.I("JNZ", block)
	fn.I("ADDQ", t.Field("tile_aStride"), panel)
	// The last block left its sums in registers.
	k.finish(fn, t, sum, sumStride, sum, sumStride, [4]asmgen.Reg{a, b, steps, row}, parts)
	fn.I("DECQ", count)
	fn.I("JNZ", next)
	fn.Return()
}

// wordPeak is peakLoop for a multiply-add of two instructions.
func wordPeak(f *asmgen.File) {
	const sums = 12
	name := wordTile.prefix + "Peak"
	fn := f.Func(name, fmt.Sprintf("%s runs rounds (> 0) times %d independent vector multiply-adds.", name, sums), asmgen.Arg("rounds", "int"))
	rounds, vs, products := fn.Load("rounds"), fn.Ys(sums+2), fn.Ys(2)
	for _, v := range vs {
		fn.I("VPXOR", v, v, v)
	}
	fn.CountDown(rounds, func() {
		for i, sum := range vs[2:] {
			product := products[i%2]
			fn.I("VPMADDWD", vs[0], vs[1], product)
			fn.I("VPADDD", product, sum, sum)
		}
	})
	fn.Return()
}

// wordPacker is the common part of the packing functions. A step has lanes dwords: 4, 8 or 16.
type wordPacker struct {
	fn                              *asmgen.Func
	lanes                           int
	dst, src, scales, records, step asmgen.Reg
}

// newWordPacker begins such a function. rows says which rows it packs.
func newWordPacker(f *asmgen.File, name, rows string, lanes int, layout asmgen.Param) *wordPacker {
	fn := f.Func(name, fmt.Sprintf("%s packs %s.\nIt stores records of 17 steps of %d dwords, step bytes apart: 16 of pairs of codes as words, then the scales. It reads these at\n"+
		"scales, 128 bytes per record.", name, rows, lanes),
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), layout,
		asmgen.Arg("scales", "unsafe.Pointer"), asmgen.Arg("records", "int"), asmgen.Arg("step", "int"))
	return &wordPacker{fn, lanes, fn.Load("dst"), fn.Load("src"), fn.Load("scales"), fn.Load("records"), fn.Load("step")}
}

// alloc allocates the registers of a step.
func (p *wordPacker) alloc() []asmgen.Vec {
	vs := p.fn.Ys((p.lanes + 7) / 8)
	if p.lanes == 4 {
		vs[0] = vs[0].X()
	}
	return vs
}

func (p *wordPacker) store(vs ...asmgen.Vec) {
	for i, v := range vs {
		p.fn.I("VMOVUPS", v, p.dst.At(32*i))
	}
	p.fn.I("ADDQ", p.step, p.dst)
}

// each calls codes for every record. codes packs the codes of one record.
func (p *wordPacker) each(codes func()) {
	scales := p.alloc()
	p.fn.CountDown(p.records, func() {
		codes()
		for i, v := range scales {
			p.fn.I("VMOVUPS", p.scales.At(32*i), v)
		}
		p.store(scales...)
		p.fn.I("ADDQ", asmgen.Imm(128), p.scales)
	})
	p.fn.Return()
}

// wordsAlong packs 4 or 8 rows that are contiguous along k. It transposes 4 by 4 dwords in both
// halves of vectors. One half holds 8 codes of a row. The other half has the next 8 codes, or those
// of the row four further down.
func wordsAlong(f *asmgen.File, lanes int) {
	p := newWordPacker(f, fmt.Sprintf("wordsAlong%dAVX2", lanes), fmt.Sprintf("%d rows that are contiguous along k; row i begins at src + offsets[i]", lanes),
		lanes, asmgen.Arg("offsets", "*[16]int"))
	fn, offsets, r, rows, pairs := p.fn, p.fn.Load("offsets"), p.fn.GP(), p.fn.Ys(4), p.fn.Ys(4)
	codes := 64 / lanes
	p.each(func() {
		for at := 0; at < 2*wordCodes; at += codes {
			for i, v := range rows {
				from := p.src.At(at).Index(r, 1)
				fn.I("MOVQ", offsets.At(8*i), r)
				if lanes == 4 {
					fn.I("VPMOVSXBW", from, v)
					continue
				}
				fn.I("VMOVQ", from, v.X())
				fn.I("MOVQ", offsets.At(8*(4+i)), r)
				fn.I("VPINSRQ", asmgen.Imm(1), from, v.X(), v.X())
				fn.I("VPMOVSXBW", v.X(), v)
			}
			transposeDwords(fn, rows, pairs)
			if lanes == 8 {
				for _, v := range rows {
					p.store(v)
				}
				continue
			}
			for _, v := range rows {
				p.store(v.X())
			}
			for _, v := range rows {
				fn.I("VEXTRACTI128", asmgen.Imm(1), v, v.X())
				p.store(v.X())
			}
		}
		fn.I("ADDQ", asmgen.Imm(2*wordCodes), p.src)
	})
}

// transposeDwords transposes 4 by 4 dwords in both halves of rows.
func transposeDwords(fn *asmgen.Func, rows, spare []asmgen.Vec) {
	for i := range 2 {
		fn.I("VPUNPCKLDQ", rows[2*i+1], rows[2*i], spare[2*i])
		fn.I("VPUNPCKHDQ", rows[2*i+1], rows[2*i], spare[2*i+1])
	}
	for i := range 2 {
		fn.I("VPUNPCKLQDQ", spare[2+i], spare[i], rows[2*i])
		fn.I("VPUNPCKHQDQ", spare[2+i], spare[i], rows[2*i+1])
	}
}

// wordsAcross packs rows whose codes are adjacent across k.
func wordsAcross(f *asmgen.File, rows int) {
	lanes := 4
	for lanes < rows {
		lanes *= 2
	}
	p := newWordPacker(f, fmt.Sprintf("wordsAcross%dAVX2", rows), fmt.Sprintf("%d rows that are adjacent in memory; along k they are stride bytes apart", rows),
		lanes, asmgen.Arg("stride", "int"))
	fn, stride, n, pair, words := p.fn, p.fn.Load("stride"), p.fn.GP(), [2]asmgen.Vec{p.fn.Y().X(), p.fn.Y().X()}, p.alloc()
	p.each(func() {
		fn.I("MOVQ", asmgen.Imm(wordCodes/2), n)
		fn.CountDown(n, func() {
			for range 2 {
				loadBytes(fn, p.src.At(0), pair[0], rows)
				loadBytes(fn, p.src.At(0).Index(stride, 1), pair[1], rows)
				for i, v := range words {
					fn.I([...]string{"VPUNPCKLBW", "VPUNPCKHBW"}[i], pair[1], pair[0], v.X())
					fn.I("VPMOVSXBW", v.X(), v)
				}
				p.store(words...)
				fn.I("LEAQ", p.src.At(0).Index(stride, 2), p.src)
			}
		})
	})
}

// loadBytes loads exactly n bytes (1 to 8, or 16): memory may end there.
func loadBytes(fn *asmgen.Func, from asmgen.Mem, v asmgen.Vec, n int) {
	switch n {
	case 16:
		fn.I("VMOVDQU", from, v)
		return
	case 8:
		fn.I("VMOVQ", from, v)
		return
	}
	at := 0
	if n >= 4 {
		fn.I("VMOVD", from, v)
		at = 4
	} else {
		fn.I("VPXOR", v, v, v)
	}
	if n-at >= 2 {
		fn.I("VPINSRW", asmgen.Imm(int64(at/2)), from.Plus(at), v, v)
		at += 2
	}
	if n > at {
		fn.I("VPINSRB", asmgen.Imm(int64(at)), from.Plus(at), v, v)
	}
}

// wordScaling packs scales of either layout.
func wordScaling(f *asmgen.File, lanes int) {
	name := fmt.Sprintf("wordScales%dAVX2", lanes)
	fn := f.Func(name, fmt.Sprintf("%s packs blocks (> 0) scales of %d rows; row i begins at src + offsets[i], and its scales are stride bytes apart.\n"+
		"It subtracts less, with a minimum of 0, and stores FP32 powers of two, 128 bytes between blocks. It records the smallest\n"+
		"and the largest scale in notes.", name, lanes),
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[16]int"), asmgen.Arg("stride", "int"),
		asmgen.Arg("blocks", "int"), asmgen.Arg("less", "int"), asmgen.Arg("notes", "*notes"))
	src, offsets := fn.Load("src"), fn.Load("offsets")
	rows := make([]asmgen.Reg, lanes)
	for i := range rows {
		rows[i] = fn.GP()
		fn.I("MOVQ", offsets.At(8*i), rows[i])
		fn.I("ADDQ", src, rows[i])
	}
	fn.Free(src, offsets)
	dst, stride, blocks, at := fn.Load("dst"), fn.Load("stride"), fn.Load("blocks"), fn.Load("less")
	none, less, least, most, bytes, v := fn.Y().X(), fn.Y().X(), fn.Y().X(), fn.Y().X(), fn.Y().X(), fn.Y()
	fn.I("VMOVQ", at, less)
	fn.I("VPBROADCASTB", less, less)
	fn.I("VPBROADCASTB", f.Data32(name+"None", 0x7f), none)
	fn.I("VMOVDQU", none, least)
	fn.I("VMOVDQU", none, most)
	fn.I("XORQ", at, at)
	fn.CountDown(blocks, func() {
		from := none
		for i, row := range rows {
			fn.I("VPINSRB", asmgen.Imm(int64(i)), row.At(0).Index(at, 1), from, bytes)
			from = bytes
		}
		fn.I("VPMINUB", bytes, least, least)
		fn.I("VPMAXUB", bytes, most, most)
		fn.I("VPSUBUSB", less, bytes, bytes)
		fn.I("VPMOVZXBD", bytes, v)
		fn.I("VPSLLD", asmgen.Imm(23), v, v)
		fn.I("VMOVUPS", v, dst.At(0))
		fn.I("ADDQ", asmgen.Imm(128), dst)
		fn.I("ADDQ", stride, at)
	})
	notes := fn.Load("notes")
	fn.I("VPMINUB", notes.Field("notes_min"), least, least)
	fn.I("VPMAXUB", notes.Field("notes_max"), most, most)
	fn.I("VMOVDQU", least, notes.Field("notes_min"))
	fn.I("VMOVDQU", most, notes.Field("notes_max"))
	fn.Return()
}
