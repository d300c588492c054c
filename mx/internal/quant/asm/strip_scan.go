package main

// The AVX2 scan of strips of BF16. It works on 16-bit words and 32 by 32 tiles.

import "spmoe/tensor/asmgen"

// stripFile is the file and its constants, which are vectors of 16 words.
type stripFile struct {
	*laneFile
	magnitude, mantissa, implicit asmgen.Mem // bits of BF16
	one                           asmgen.Mem
	least                         asmgen.Mem // lowest exponent that is distinguished
	normal                        asmgen.Mem // largest magnitude with exponent 0
	none                          asmgen.Mem // bias of a block of zeros: all codes are subnormal
	sign                          asmgen.Mem // sign bit of a code, in bytes
	// An odd block has a magnitude above huge, or none above tiny and not all zero.
	huge, tiny asmgen.Mem
}

func newStrips(f *laneFile) *stripFile {
	all := func(name string, w uint32) asmgen.Mem {
		w |= w << 16
		return f.Data32(name, w, w, w, w, w, w, w, w)
	}
	return &stripFile{
		f, all("magnitude16", 0x7fff), all("mantissa16", 0x7f), all("implicit16", 0x80),
		all("one16", 1), all("least16", 0xfff8),
		all("normal16", 0x7f), all("none16", 0x400), all("sign8", 0x8080),
		all("huge16", 0x7f7f), all("tiny16", 40<<7-1),
	}
}

func stripKernels(f *laneFile) {
	s := newStrips(f)
	s.scan()
	s.encode(true, false)
	s.encode(false, true)
	s.encode(true, true)
}

// scan prints the scan of whole tiles of 32 rows.
func (s *stripFile) scan() {
	fn := s.Func("scanStripAVX2", "scanStripAVX2 writes the largest magnitudes of n tiles as FP32: 32 of rows and 32 of columns\n"+
		"per tile. odd says that a block has a NaN or an infinity, or that its magnitudes are all below\n"+
		"2^-87 and not all zero.",
		append(pointer("amax", "x"), asmgen.Arg("stride", "int"), asmgen.Arg("n", "int"), asmgen.Result("odd", "bool"))...)
	amax, x, stride, n, row := fn.Load("amax"), fn.Load("x"), fn.Load("stride"), fn.Load("n"), fn.GP()
	magnitude, odd, cols := loadY(fn, s.magnitude), fn.Y(), fn.Ys(2)
	fn.I("VPXOR", odd, odd, odd)
	fn.CountDown(n, func() {
		fn.I("MOVQ", x, row)
		for _, c := range cols {
			fn.I("VPXOR", c, c, c)
		}
		t := wordTree{}
		for range 32 {
			v, w := fn.Y(), fn.Y()
			fn.I("PREFETCHT0", row.At(512)) // the next strip
			fn.I("VPAND", row.At(0), magnitude, v)
			fn.I("VPAND", row.At(32), magnitude, w)
			fn.I("ADDQ", stride, row)
			fn.I("VPMAXUW", v, cols[0], cols[0])
			fn.I("VPMAXUW", w, cols[1], cols[1])
			fn.I("VPMAXUW", w, v, v)
			fn.Free(w)
			t.add(fn, v)
		}
		for i, v := range append(t.finish(fn), cols...) {
			s.markOdd(fn, v, odd)
			wide := fn.Y()
			fn.I("VPMOVZXWD", v.X(), wide)
			fn.I("VPSLLD", asmgen.Imm(16), wide, wide)
			fn.I("VMOVDQU", wide, amax.At(64*i))
			fn.I("VEXTRACTI128", asmgen.Imm(1), v, wide.X())
			fn.I("VPMOVZXWD", wide.X(), wide)
			fn.I("VPSLLD", asmgen.Imm(16), wide, wide)
			fn.I("VMOVDQU", wide, amax.At(64*i+32))
			fn.Free(wide)
			if i < 2 {
				fn.Free(v)
			}
		}
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(256), amax)
	})
	fn.I("VPTEST", odd, odd)
	fn.I("SETNE", fn.Slot("odd"))
	fn.Return()
}

// markOdd sets the words of odd where the largest magnitudes v are odd.
func (s *stripFile) markOdd(fn *asmgen.Func, v, odd asmgen.Vec) {
	t, u := fn.Y(), fn.Y()
	fn.I("VPCMPGTW", s.huge, v, t)
	fn.I("VPOR", t, odd, odd)
	fn.I("VPXOR", u, u, u)
	fn.I("VPCMPGTW", u, v, t)
	fn.I("VPCMPGTW", s.tiny, v, u)
	fn.I("VPANDN", t, u, t)
	fn.I("VPOR", t, odd, odd)
	fn.Free(t, u)
}

// A wordTree takes the maximum of each of 32 rows of 16 words, as tree does for bytes.
type wordTree struct {
	levels [3]*asmgen.Vec
	eights []asmgen.Vec // of 8 rows each, in both 128-bit lanes
}

func (t *wordTree) add(fn *asmgen.Func, v asmgen.Vec) {
	for level, group := range []string{"WD", "DQ", "QDQ"} {
		if t.levels[level] == nil {
			t.levels[level] = &v
			return
		}
		first, low := *t.levels[level], fn.Y()
		t.levels[level] = nil
		fn.I("VPUNPCKL"+group, v, first, low)
		fn.I("VPUNPCKH"+group, v, first, first)
		fn.I("VPMAXUW", first, low, low)
		fn.Free(first, v)
		v = low
	}
	t.eights = append(t.eights, v)
}

// finish returns the maxima of rows 0 to 15 and of rows 16 to 31.
func (t *wordTree) finish(fn *asmgen.Func) []asmgen.Vec {
	var out []asmgen.Vec
	for i := 0; i < 4; i += 2 {
		a, b, v := t.eights[i], t.eights[i+1], fn.Y()
		fn.I("VPERM2I128", asmgen.Imm(0x20), b, a, v)
		fn.I("VPERM2I128", asmgen.Imm(0x31), b, a, a)
		fn.I("VPMAXUW", a, v, v)
		fn.Free(a, b)
		out = append(out, v)
	}
	return out
}
