package main

// Packing the scales of MXINT8 as FP32 powers of two.

import "spmoe/tensor/asmgen"

const scalesDoc = "\nIt subtracts less, with a minimum of 0, and stores FP32 powers of two, record bytes between blocks. It records the smallest\n" +
	"and the largest scale in notes."

// scaleSteps is the frame of both functions. K1 to K4 mask the scales to load, K5 those to store.
type scaleSteps struct {
	fn                       *asmgen.Func
	dst, src, blocks, record asmgen.Reg
	none, less, least, most  asmgen.Vec
	temp                     asmgen.Vec
}

func newScaleSteps(f *asmgen.File, name, doc string, args ...asmgen.Param) *scaleSteps {
	args = append([]asmgen.Param{asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer")}, args...)
	args = append(args, asmgen.Arg("blocks", "int"), asmgen.Arg("record", "int"), asmgen.Arg("lanes", "int"), asmgen.Arg("less", "int"), asmgen.Arg("notes", "*notes"))
	fn := f.Func(name, name+doc+scalesDoc, args...)
	s := &scaleSteps{fn: fn, dst: fn.Load("dst"), src: fn.Load("src"), blocks: fn.Load("blocks"), record: fn.Load("record"),
		none: fn.Z(), less: fn.Z(), least: fn.Z(), most: fn.Z(), temp: fn.Z()}
	r := fn.Load("less")
	fn.I("VPBROADCASTB", r, s.less)
	fn.I("MOVQ", asmgen.Imm(127), r)
	fn.I("VPBROADCASTB", r, s.none)
	fn.I("MOVQ", fn.Slot("lanes"), r)
	fn.I("KMOVQ", r, asmgen.K(5))
	fn.I("VMOVDQA64", s.none, s.least)
	fn.I("VMOVDQA64", s.none, s.most)
	fn.Free(r)
	return s
}

// note notes the scales in v and subtracts less from them.
func (s *scaleSteps) note(v asmgen.Vec) {
	s.fn.I("VPMINUB", v, s.least, s.least)
	s.fn.I("VPMAXUB", v, s.most, s.most)
	s.fn.I("VPSUBUSB", s.less, v, v)
}

// store stores the scales of a block, which v holds as bytes.
func (s *scaleSteps) store(v asmgen.Vec) {
	s.fn.I("VPMOVZXBD", v.X(), s.temp)
	s.fn.I("VPSLLD", asmgen.Imm(23), s.temp, s.temp)
	s.fn.I("VMOVUPS", s.temp, asmgen.K(5), s.dst.At(0))
	s.fn.I("ADDQ", s.record, s.dst)
}

func (s *scaleSteps) finish() {
	notes := s.fn.Load("notes")
	s.fn.I("VPMINUB", notes.Field("notes_min"), s.least, s.least)
	s.fn.I("VPMAXUB", notes.Field("notes_max"), s.most, s.most)
	s.fn.I("VMOVUPS", s.least, notes.Field("notes_min"))
	s.fn.I("VMOVUPS", s.most, notes.Field("notes_max"))
	s.fn.Return()
}

// scalesAcross packs scales that are adjacent across k.
func scalesAcross(f *asmgen.File) {
	s := newScaleSteps(f, "scalesAcrossAVX512", " packs blocks (> 0) scales of up to 16 rows, masked by lanes, which are adjacent in memory; along k they are\nstride bytes apart.",
		asmgen.Arg("stride", "int"))
	fn, stride, v := s.fn, s.fn.Load("stride"), s.fn.Z()
	fn.CountDown(s.blocks, func() {
		fn.I("VMOVDQA64", s.none, v)
		fn.I("VMOVDQU8", s.src.At(0), asmgen.K(5), v)
		s.note(v)
		s.store(v)
		fn.I("ADDQ", stride, s.src)
	})
	s.finish()
}

// scalesAlong packs scales that are contiguous along k. It transposes 16 by 16 bytes.
func scalesAlong(f *asmgen.File) {
	s := newScaleSteps(f, "scalesAlongAVX512", " packs blocks (> 0) scales of 16 rows, contiguous along k; row i begins at src + offsets[i]. tail masks the last\n"+
		"blocks%16 of them, and lanes masks the rows to be stored.", asmgen.Arg("offsets", "*[16]int"), asmgen.Arg("tail", "int"))
	fn, offsets, r := s.fn, s.fn.Load("offsets"), s.fn.GP()
	rows, halves, order := fn.Zs(4), fn.Zs(4), fn.Zs(2)
	for h, v := range order {
		// The scales of one block of 8 rows become a quadword. Unpacking will put blocks 0, 4, 1,
		// 5, 2, 6, 3, 7 in order.
		bytes := make([]byte, 64)
		for i := range bytes {
			block, row := 8*h+i/16+i/8%2*4, i%8
			bytes[i] = byte(16*row + block)
		}
		fn.I("VMOVUPS", f.Data("scaleOrder"+string(rune('0'+h)), bytes), v)
	}
	next, whole, done := fn.Label("next"), fn.Label("whole"), fn.Label("done")
	fn.Place(next)
	fn.I("MOVQ", asmgen.Imm(0xffff), r)
	fn.I("CMPQ", s.blocks, asmgen.Imm(16))
	fn.I("JGE", whole)
	fn.I("MOVQ", fn.Slot("tail"), r)
	fn.Place(whole)
	for q := range 4 {
		fn.I("KMOVQ", r, asmgen.K(1+q))
		fn.I("SHLQ", asmgen.Imm(16), r)
	}
	for i, v := range rows { // one lane for each of four rows
		fn.I("VMOVDQA64", s.none, v)
		for q := range 4 {
			fn.I("MOVQ", offsets.At(8*(4*i+q)), r)
			fn.I("VMOVDQU8", s.src.At(-16*q).Index(r, 1), asmgen.K(1+q), v)
		}
		s.note(v)
	}
	for h := range 2 {
		for i := range 2 {
			v := halves[2*h+i]
			fn.I("VMOVDQA64", order[h], v)
			fn.I("VPERMI2B", rows[2*i+1], rows[2*i], v)
		}
	}
	for h := range 2 {
		fn.I("VPUNPCKLQDQ", halves[2*h+1], halves[2*h], rows[2*h])
		fn.I("VPUNPCKHQDQ", halves[2*h+1], halves[2*h], rows[2*h+1])
	}
	for block := range 16 {
		v := rows[block/4]
		if q := block % 4; q > 0 {
			fn.I("VEXTRACTI32X4", asmgen.Imm(int64(q)), v, s.temp.X())
			v = s.temp
		}
		s.store(v)
		fn.I("DECQ", s.blocks)
		fn.I("JZ", done)
	}
	fn.I("ADDQ", asmgen.Imm(16), s.src)
	fn.I("JMP", next)
	fn.Place(done)
	s.finish()
}
