package main

// The first step: everything about a tile that can be said in one reading.

import "spmoe/tensor/asmgen"

// narrow rounds to odd by integers: adding 0xffff to the half that falls away carries into bit 16 unless it is zero.
func narrow(f *file) {
	fn := f.Func("narrowAVX512", "narrowAVX512 sets n BF16 (a multiple of 32, > 0) to FP32 rounded to odd.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("n", "int"))
	dst, src, n := fn.Load("dst"), fn.Load("src"), fn.Load("n")
	high, low := load(fn, f.highWords), fn.Z()
	fn.I("VPTERNLOGD", asmgen.Imm(0xff), low, low, low)
	fn.I("VPSRLD", asmgen.Imm(16), low, low)
	fn.I("SHRQ", asmgen.Imm(5), n)
	x, t := fn.Zs(2), fn.Z()
	fn.CountDown(n, func() {
		for i, v := range x {
			fn.I("VMOVUPS", src.At(64*i), v)
			fn.I("VPANDD", low, v, t)
			fn.I("VPADDD", low, t, t)
			fn.I("VPORD", t, v, v)
		}
		fn.I("VPERMT2W", x[1], high, x[0])
		fn.I("VMOVUPS", x[0], dst.At(0))
		fn.I("ADDQ", asmgen.Imm(128), src)
		fn.I("ADDQ", asmgen.Imm(64), dst)
	})
	fn.Return()
}

// scan is quant.Kernels.Scan.
func scan(f *file) {
	fn := f.Func("scanAVX512", "scanAVX512 reads 32 rows of 64 BF16, stride bytes apart.", asmgen.Arg("x", "unsafe.Pointer"),
		asmgen.Arg("stride", "int"), asmgen.Arg("rule", "*Rule"), asmgen.Arg("work", "*Work"), asmgen.Result("odd", "bool"))
	x, stride, rule, work := fn.Load("x"), fn.Load("stride"), fn.Load("rule"), fn.Load("work")
	s := scanner{Func: fn, file: f, x: x, stride: stride, rule: rule, work: work}
	s.rows()
	s.derive()
	s.refuse()
	fn.Return()
}

type scanner struct {
	*asmgen.Func
	file                  *file
	x, stride, rule, work asmgen.Reg
	rowMax, colMax        asmgen.Vec // of the exponents of each block
}

// rows goes over the rows. x is used up.
func (s *scanner) rows() {
	table := s.GP()
	s.I("LEAQ", s.file.rounding, table)
	s.I("ADDQ", s.rule.At(ruleTable), table)
	odd, even := load(s.Func, s.file.odd), load(s.Func, s.file.even)
	rounding := [2]asmgen.Vec{load(s.Func, table.At(0)), load(s.Func, table.At(64))}
	shift, roundUp := broadcast(s.Func, "VPBROADCASTW", s.rule.At(ruleShift)), broadcast(s.Func, "VPBROADCASTW", s.rule.At(ruleRoundUp))
	s.colMax = s.Z()
	s.I("VPXORD", s.colMax, s.colMax, s.colMax)
	var tree tree
	for r := range 32 {
		x0, x1 := load(s.Func, s.x.At(0)), load(s.Func, s.x.At(64))
		if r < 31 {
			s.I("ADDQ", s.stride, s.x)
		}
		e, t := s.Z(), s.Z()
		for _, v := range [][2]asmgen.Vec{{x0, e}, {x1, t}} {
			s.I("VPADDW", v[0], v[0], v[1])
			s.I("VPADDUSW", roundUp, v[1], v[1])
		}
		s.I("VPERMT2B", t, odd, e)
		s.I("VMOVDQU64", e, s.work.At(workExponent+64*r))
		s.I("VPMAXUB", e, s.colMax, s.colMax)

		code := s.Z()
		s.I("VPSLLVW", shift, x0, code)
		s.I("VPSLLVW", shift, x1, t)
		s.I("VPERMT2B", t, odd, code)
		s.I("VMOVDQA64", x0, t)
		s.I("VPERMT2B", x1, odd, t)
		s.I("VMOVDQU64", t, s.work.At(workSign+64*r))
		s.I("VPERMT2B", x1, even, x0)
		s.I("VPERMI2B", rounding[1], rounding[0], x0)
		s.I("VPADDB", x0, code, code)
		s.I("VMOVDQU64", code, s.work.At(workCode+64*r))
		s.Free(x0, x1, t, code)
		tree.add(s.Func, e)
	}
	s.rowMax = tree.finish(s.Func)
	s.Free(odd, even, rounding[0], rounding[1], shift, roundUp, table)
}

// A tree takes the maximum over each half of 32 rows. Rows that have met are interleaved, at first by bytes, then by
// ever wider groups, so that after four levels each 16 bytes hold one value of each of 16 rows in order.
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

// finish combines neighbouring quarters: the bytes become left blocks of rows 0 to 31, then right ones.
func (t *tree) finish(fn *asmgen.Func) asmgen.Vec {
	a, b, v := t.halves[0], t.halves[1], fn.Z()
	fn.I("VSHUFI64X2", asmgen.Imm(0x88), b, a, v)
	fn.I("VSHUFI64X2", asmgen.Imm(0xdd), b, a, a)
	fn.I("VPMAXUB", a, v, v)
	fn.I("VSHUFI64X2", asmgen.Imm(0xd8), v, v, v)
	fn.Free(a, b)
	return v
}

// derive stores the values of all blocks.
func (s *scanner) derive() {
	emax, lowest := broadcast(s.Func, "VPBROADCASTB", s.rule.At(ruleEmax)), s.file.all(s.Func, lowest)
	bias, limit := broadcast(s.Func, "VPBROADCASTB", s.rule.At(ruleBias)), broadcast(s.Func, "VPBROADCASTB", s.rule.At(ruleLimit))
	mantissa, mask := broadcast(s.Func, "VPBROADCASTW", s.rule.At(ruleMantissa)), broadcast(s.Func, "VPBROADCASTB", s.rule.At(ruleMask))
	scale, t := s.Z(), s.Z()
	for _, of := range []struct {
		exponent asmgen.Vec
		at       int
	}{{s.rowMax, workRows}, {s.colMax, workCols}} {
		s.I("VPSUBUSB", emax, of.exponent, scale)
		s.I("VMOVDQU64", scale, s.work.At(of.at+valuesScale))
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

// refuse finds out whether the tile is odd. A block whose exponent is 0 holds zeros or BF16 subnormals: then all elements
// are looked through for the latter.
func (s *scanner) refuse() {
	const below, k1, k2, k3 = 1, asmgen.Mask(1), asmgen.Mask(2), asmgen.Mask(3)
	one, low, top, t := s.file.all(s.Func, 1), s.file.all(s.Func, tiny), s.file.all(s.Func, 0xff), s.Z()
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
