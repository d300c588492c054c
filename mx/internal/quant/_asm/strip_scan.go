package main

// The AVX2 scan of strips of BF16. It works on 16-bit words and 32 by 32 tiles.

import "spmoe/tensor/asmgen"

// stripFile is the file and its constants, which are vectors of 16 words.
type stripFile struct {
	*asmgen.File
	magnitude, mantissa, implicit asmgen.Mem // bits of BF16
	one                           asmgen.Mem
	least                         asmgen.Mem // lowest exponent that is distinguished
	normal                        asmgen.Mem // largest magnitude with exponent 0
	none                          asmgen.Mem // bias of a block of zeros: all codes are subnormal
	sign                          asmgen.Mem // sign bit of a code, in bytes
	// An odd block has a magnitude above huge, or none above tiny and not all zero.
	huge, tiny asmgen.Mem
}

func newStripFile(f *asmgen.File) *stripFile {
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

func stripKernels(f *asmgen.File) {
	s := newStripFile(f)
	s.scan()
	s.encode(true, false)
	s.encode(false, true)
	s.encode(true, true)
}

// middleSwapped makes VPERMQ put the bytes of two packed vectors in order.
const middleSwapped = 0xd8

// scan prints the scan of whole tiles of 32 rows.
func (s *stripFile) scan() {
	fn := s.Func("scanStripAVX2", "scanStripAVX2 sets the scales of a strip, or says that it is odd.",
		asmgen.Arg("s", "*Strip"), asmgen.Result("odd", "bool"))
	strip, format, x, stride, n, scales, row := fn.Load("s"), fn.GP(), fn.GP(), fn.GP(), fn.GP(), fn.GP(), fn.GP()
	fn.I("MOVQ", strip.Field("Strip_Format"), format)
	fn.I("MOVQ", strip.Field("Strip_X"), x)
	fn.I("MOVQ", strip.Field("Strip_Stride"), stride)
	fn.I("MOVQ", strip.Field("Strip_Tiles"), n)
	fn.I("LEAQ", strip.Field("Strip_scales"), scales)
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
		rows := t.finish(fn)
		for i, block := range [][]asmgen.Vec{rows, cols} {
			for _, v := range block {
				s.markOdd(fn, v, odd)
				fn.I("VPADDW", format.Field("Format_roundUp"), v, v)
				fn.I("VPSRLW", asmgen.Imm(7), v, v)
				fn.I("VPSUBUSW", format.Field("Format_emax"), v, v)
			}
			fn.I("VPACKUSWB", block[1], block[0], block[0])
			fn.I("VPERMQ", asmgen.Imm(middleSwapped), block[0], block[0])
			fn.I("VMOVDQU", block[0], scales.At(32*i))
		}
		fn.Free(rows[0], rows[1])
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(64), scales)
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
