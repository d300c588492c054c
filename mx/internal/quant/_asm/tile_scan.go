package main

// The first step: everything that one pass over a tile can compute.

import "spmoe/tensor/asmgen"

// drain prints a store fence, because non-temporal stores are not ordered with later stores.
func drain(f *tileFile) {
	fn := f.Func("drainAVX512", "drainAVX512 orders non-temporal stores before later stores.")
	fn.I("SFENCE")
	fn.Return()
}

// scan prints the scan.
func scan(f *tileFile) {
	fn := f.Func("scanAVX512", "scanAVX512 reads 32 rows of 64 BF16, stride bytes apart.", asmgen.Arg("x", "unsafe.Pointer"),
		asmgen.Arg("stride", "int"), asmgen.Arg("rule", "*Rule"), asmgen.Arg("work", "*Work"), asmgen.Result("odd", "bool"))
	x, stride, rule, work := fn.Load("x"), fn.Load("stride"), fn.Load("rule"), fn.Load("work")
	s := scanner{Func: fn, file: f, x: x, stride: stride, rule: rule, work: work}
	s.scanRows()
	s.storeBlockValues()
	s.detectOdd()
	fn.Return()
}

type scanner struct {
	*asmgen.Func
	file                  *tileFile
	x, stride, rule, work asmgen.Reg
	rowMax, colMax        asmgen.Vec // largest exponent of each block
}

// scanRows prints the loop over the rows. It advances x.
func (s *scanner) scanRows() {
	odd, roundUp := loadZ(s.Func, s.file.odd), broadcastZ(s.Func, "VPBROADCASTW", s.rule.Field("Rule_roundUp"))
	c := s.newCodeWriter(odd)
	s.colMax = s.Z()
	s.I("VPXORD", s.colMax, s.colMax, s.colMax)
	var tree tree
	for r := range 32 {
		x0, x1 := loadZ(s.Func, s.x.At(0)), loadZ(s.Func, s.x.At(64))
		if r < 31 {
			s.I("ADDQ", s.stride, s.x)
		}
		e, t := s.Z(), s.Z()
		for _, v := range [][2]asmgen.Vec{{x0, e}, {x1, t}} {
			s.I("VPADDW", v[0], v[0], v[1])
			s.I("VPADDUSW", roundUp, v[1], v[1])
		}
		s.I("VPERMT2B", t, odd, e)
		s.I("VPMAXUB", e, s.colMax, s.colMax)
		s.Free(t)
		s.I("VMOVDQU64", e, s.work.At(workExponent+64*r))
		c.row(r, x0, x1)
		s.Free(x0, x1)
		tree.add(s.Func, e)
	}
	s.rowMax = tree.finish(s.Func)
	s.Free(odd, roundUp)
	c.free()
}

// A codeWriter stores the codes and signs of rows.
type codeWriter struct {
	*scanner
	odd, even, shift asmgen.Vec
	rounding         [2]asmgen.Vec
}

func (s *scanner) newCodeWriter(odd asmgen.Vec) codeWriter {
	table := s.GP()
	s.I("LEAQ", s.file.rounding, table)
	s.I("ADDQ", s.rule.Field("Rule_table"), table)
	defer s.Free(table)
	return codeWriter{scanner: s, odd: odd, even: loadZ(s.Func, s.file.even), shift: broadcastZ(s.Func, "VPBROADCASTW", s.rule.Field("Rule_shift")),
		rounding: [2]asmgen.Vec{loadZ(s.Func, table.At(0)), loadZ(s.Func, table.At(64))}}
}

// row stores row r. It overwrites x0.
func (c codeWriter) row(r int, x0, x1 asmgen.Vec) {
	const left, right = asmgen.Mask(1), asmgen.Mask(2)
	code, t := c.Z(), c.Z()
	c.I("VPSLLVW", c.shift, x0, code)
	c.I("VPSLLVW", c.shift, x1, t)
	c.I("VPERMT2B", t, c.odd, code)
	c.I("VPMOVW2M", x0, left)
	c.I("VPMOVW2M", x1, right)
	c.I("KUNPCKDQ", left, right, left)
	c.I("KMOVQ", left, c.work.At(workSign+8*r))
	c.I("VPERMT2B", x1, c.even, x0)
	c.I("VPERMI2B", c.rounding[1], c.rounding[0], x0)
	c.I("VPADDB", x0, code, code)
	c.I("VMOVDQU64", code, c.work.At(workCode+64*r))
	c.Free(code, t)
}

func (c codeWriter) free() { c.Free(c.even, c.shift, c.rounding[0], c.rounding[1]) }

// A tree takes the maximum over each half of 32 rows. Combined rows are interleaved, first by bytes
// and then by ever wider groups. After four levels, each 16 bytes hold one value from each of 16
// rows, in order.
type tree struct {
	levels [4]*asmgen.Vec // a vector that waits for its partner
	halves []asmgen.Vec
}

func (t *tree) add(fn *asmgen.Func, v asmgen.Vec) {
	for level, group := range []string{"BW", "WD", "DQ", "QDQ"} {
		if t.levels[level] == nil {
			t.levels[level] = &v
			return
		}
		first, low := *t.levels[level], fn.Z()
		t.levels[level] = nil
		fn.I("VPUNPCKL"+group, v, first, low)
		fn.I("VPUNPCKH"+group, v, first, first)
		fn.I("VPMAXUB", first, low, low)
		fn.Free(first, v)
		v = low
	}
	t.halves = append(t.halves, v)
}

// finish combines neighboring quarters. The bytes of the result are the left blocks of rows 0 to
// 31, then the right ones.
func (t *tree) finish(fn *asmgen.Func) asmgen.Vec {
	a, b, v := t.halves[0], t.halves[1], fn.Z()
	fn.I("VSHUFI64X2", asmgen.Imm(0x88), b, a, v)
	fn.I("VSHUFI64X2", asmgen.Imm(0xdd), b, a, a)
	fn.I("VPMAXUB", a, v, v)
	fn.I("VSHUFI64X2", asmgen.Imm(0xd8), v, v, v)
	fn.Free(a, b)
	return v
}

// storeBlockValues stores the values of all blocks.
func (s *scanner) storeBlockValues() {
	emax, lowest := broadcastZ(s.Func, "VPBROADCASTB", s.rule.Field("Rule_emax")), s.file.broadcastByte(s.Func, lowest)
	bias, limit := broadcastZ(s.Func, "VPBROADCASTB", s.rule.Field("Rule_bias")), broadcastZ(s.Func, "VPBROADCASTB", s.rule.Field("Rule_limit"))
	mantissa, mask := broadcastZ(s.Func, "VPBROADCASTW", s.rule.Field("Rule_mantissa")), broadcastZ(s.Func, "VPBROADCASTB", s.rule.Field("Rule_mask"))
	scale, t := s.Z(), s.Z()
	for _, of := range []struct {
		exponent asmgen.Vec
		at       int
	}{{s.rowMax, workRows}, {s.colMax, workCols}} {
		s.I("VPSUBUSB", emax, of.exponent, scale)
		s.storeScales(scale, of.at)
		s.I("VPMAXUB", lowest, scale, scale)
		s.I("VMOVDQU64", scale, s.work.At(of.at+valuesSafe))
		s.I("VPSUBB", limit, scale, t)
		s.I("VMOVDQU64", t, s.work.At(of.at+valuesLimit))
		s.I("VPSUBB", bias, scale, t)
		s.I("VPSLLVW", mantissa, t, t)
		s.I("VPANDD", mask, t, t)
		s.I("VMOVDQU64", t, s.work.At(of.at+valuesBias))
	}
	s.Free(emax, lowest, bias, limit, mantissa, mask, scale, t)
}

// storeScales stores the scales in block order. The two blocks of a row are adjacent along rows.
func (s *scanner) storeScales(scale asmgen.Vec, values int) {
	if values == workRows {
		order := loadZ(s.Func, s.file.pairs)
		s.I("VPERMB", scale, order, order)
		s.I("VMOVDQU64", order, s.work.At(values+valuesScale))
		s.Free(order)
		return
	}
	s.I("VMOVDQU64", scale, s.work.At(values+valuesScale))
}

// detectOdd finds out whether the tile is odd. A block with exponent 0 holds zeros or BF16
// subnormals. In that case all elements are searched for subnormals.
func (s *scanner) detectOdd() {
	const below, k1, k2, k3 = 1, asmgen.Mask(1), asmgen.Mask(2), asmgen.Mask(3)
	one, low, top, t := s.file.broadcastByte(s.Func, 1), s.file.broadcastByte(s.Func, tiny), s.file.broadcastByte(s.Func, 0xff), s.Z()
	bad, done := s.Label("bad"), s.Label("done")
	for _, exponent := range []asmgen.Vec{s.rowMax, s.colMax} {
		s.I("VPSUBB", one, exponent, t)
		s.I("VPCMPUB", asmgen.Imm(below), low, t, k1) // 1 to tiny
		s.I("VPCMPEQB", top, exponent, k2)
		s.I("KORTESTQ", k1, k2)
		s.I("JNE", bad)
	}
	s.I("VPTESTNMB", s.rowMax, s.rowMax, k1)
	s.I("VPTESTNMB", s.colMax, s.colMax, k2)
	s.I("KORTESTQ", k1, k2)
	s.I("JEQ", done)

	s.I("MOVQ", s.Slot("x"), s.x)
	count := s.GP()
	s.I("MOVQ", asmgen.Imm(32), count)
	exponent, v := s.Z(), s.Z()
	s.I("VPTERNLOGD", asmgen.Imm(0xff), exponent, exponent, exponent)
	s.I("VPSLLW", asmgen.Imm(8), exponent, exponent)
	s.I("KXORQ", k3, k3, k3)
	s.CountDown(count, func() {
		for i := range 2 {
			s.I("VMOVDQU64", s.x.At(64*i), v)
			s.I("VPADDW", v, v, v)
			s.I("VPTESTNMW", exponent, v, k1)
			s.I("VPTESTMW", v, v, k1, k2)
			s.I("KORQ", k2, k3, k3)
		}
		s.I("ADDQ", s.stride, s.x)
	})
	s.I("KORTESTQ", k3, k3)
	s.I("JNE", bad)
	s.Place(done)
	s.I("MOVB", asmgen.Imm(0), s.Slot("odd"))
	s.I("VZEROUPPER")
	s.I("RET")
	s.Place(bad)
	s.I("MOVB", asmgen.Imm(1), s.Slot("odd"))
}
