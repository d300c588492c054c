package main

// Products on AVX2 with few rows of a, where b holds E4M3 codes. A code with its fields at their
// FP32 positions is 2^120 times too small, subnormal or not. A multiplication by a factor that
// includes the block's scale gives the exact value.

import (
	"fmt"
	"slices"

	"spmoe/tensor/asmgen"
)

// directMXAVX2Columns is the number of rows of b that the kernels for 1 to 8 rows of a take at
// once.
var directMXAVX2Columns = [...]int{1: 6, 2: 4, 3: 3, 4: 2, 5: 2, 6: 2, 7: 1, 8: 1}

// codedHalves is a directKernel for codes on AVX2.
type codedHalves struct {
	*directKernel
	codedHalvesData
	scaleStride       asmgen.Reg
	factors           []asmgen.Reg // of rows 0, 3 and 6
	most              asmgen.Vec   // maximum of all codes, doubled
	first, second, by asmgen.Vec
}

// codedHalvesData holds constants.
type codedHalvesData struct {
	// Select the codes of eight pairs that become the top bytes of FP32.
	firsts, seconds asmgen.Operand
	// Positions of the sign, exponent and mantissa of a code after a shift.
	field asmgen.Operand
	nan   asmgen.Operand // bytes: twice NaN
}

// E4M3 as FP32: a code's bits are those of a number that is too small by 2^120. This holds for
// subnormals too.
const (
	e4m3Field = 0x87f0_0000 // positions of sign, exponent and mantissa
	e4m3Bias  = 120         // added to a scale, it gives the exponent of a factor
)

func directMXAVX2(f *asmgen.File) {
	f.Constant("factorBias", e4m3Bias)
	picked := func(name string, first uint32) asmgen.Operand {
		var bytes []uint32
		for code := first; code < 16; code += 2 {
			bytes = append(bytes, code<<24|0x808080)
		}
		return f.Data32(name, bytes...)
	}
	data := codedHalvesData{
		firsts: picked("firsts", 0), seconds: picked("seconds", 1),
		field: f.Data32("field32", slices.Repeat([]uint32{e4m3Field}, 8)...),
		nan:   f.Data32("twiceNaN", slices.Repeat([]uint32{0xfefe_fefe}, 8)...),
	}
	for rows := 1; rows < len(directMXAVX2Columns); rows++ {
		k := newDirect(f, fmt.Sprintf("directMXx%dAVX2", rows), "E4M3, with a factor for every 32 codes", rows, directMXAVX2Columns[rows])
		fn := k.fn
		c := codedHalves{directKernel: k, codedHalvesData: data, scaleStride: fn.GP()}
		for range k.bases {
			c.factors = append(c.factors, fn.GP())
		}
		fn.I("MOVQ", k.t.Field("direct_scaleStride"), c.scaleStride)
		for range rows {
			k.sums = append(k.sums, fn.Ys(k.columns))
		}
		c.hold(16 - rows*k.columns - codedHalvesTemps)
		k.halves(c.half)
	}
	factorsAVX2(f)
}

// codedHalvesTemps is the number of vectors that half needs.
const codedHalvesTemps = 4

// hold loads up to n of the loop's constants into registers: most kernels are bound by reading a
// from L1.
func (c *codedHalves) hold(n int) {
	for _, constant := range []*asmgen.Operand{&c.field, &c.seconds, &c.firsts}[:min(n, 3)] {
		v := c.fn.Y()
		c.fn.I("VMOVUPS", *constant, v)
		*constant = v
	}
}

// half multiplies half of every block: of each pair the second code, then the first.
func (c *codedHalves) half(half int) {
	fn, t := c.fn, c.t
	c.first, c.second, c.by = fn.Y(), fn.Y(), fn.Y()
	used := []asmgen.Operand{c.first, c.second, c.by}
	if half == 0 {
		c.most = fn.Y()
		used = append(used, c.most)
		fn.I("VPXOR", c.most, c.most, c.most)
	}
	fn.I("MOVQ", t.Field("direct_scales"), c.factors[0])
	fn.I("ADDQ", t.Field("direct_moved+moves_scales"), c.factors[0])
	for i := 1; i < len(c.factors); i++ {
		fn.I("LEAQ", c.factors[i-1].At(0).Index(c.scaleStride, 2), c.factors[i])
		fn.I("ADDQ", c.scaleStride, c.factors[i])
	}
	fn.I("MOVQ", t.Field("direct_steps"), c.steps)
	fn.CountDown(c.steps, func() {
		for j := range c.columns {
			c.column(half, j)
		}
		fn.I("ADDQ", asmgen.Imm(int64(128*c.rows)), c.a)
		for _, r := range c.factors {
			fn.I("ADDQ", asmgen.Imm(4), r)
		}
		c.pass(half, 32)
	})
	if half == 0 {
		fn.I("VPCMPEQB", c.nan, c.most, c.most) // NaN is the largest
		fn.I("VPOR", t.Field("direct_notes+notes_bad"), c.most, c.most)
		fn.I("VMOVUPS", c.most, t.Field("direct_notes+notes_bad"))
	} else { // the group's end
		fn.I("IMUL3Q", asmgen.Imm(int64(c.columns)), c.scaleStride, c.steps)
		fn.I("ADDQ", c.steps, t.Field("direct_moved+moves_scales"))
	}
	fn.Free(used...)
}

// column multiplies 16 codes of row j of b with all rows of a.
func (c *codedHalves) column(half, j int) {
	fn := c.fn
	if half == 0 {
		fn.I("VMOVUPS", c.row(j), c.first)
		fn.I("VPADDB", c.first, c.first, c.first) // without the sign
		fn.I("VPMAXUB", c.first, c.most, c.most)
	}
	factor := c.factors[j/3].At(0)
	if j%3 > 0 {
		factor = factor.Index(c.scaleStride, j%3)
	}
	fn.I("VBROADCASTI128", c.row(j).Plus(16*half), c.first)
	fn.I("VBROADCASTSS", factor, c.by)
	fn.I("VPSHUFB", c.seconds, c.first, c.second)
	fn.I("VPSHUFB", c.firsts, c.first, c.first)
	for part, v := range []asmgen.Vec{c.second, c.first} {
		fn.I("VPSRAD", asmgen.Imm(4), v, v)
		fn.I("VPAND", c.field, v, v)
		fn.I("VMULPS", c.by, v, v)
		for i, sums := range c.sums {
			fn.I("VFMADD231PS", c.a.At(128*i+64*half+32*part), v, sums[j])
		}
	}
}

// factorsAVX2 generates the function that converts scales to factors.
func factorsAVX2(f *asmgen.File) {
	fn := f.Func("factorsAVX2", "factorsAVX2 converts n (> 0) times 16 scales, of up to 134, to the factors of codes. It records the smallest and the largest scale in met.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("n", "int"), asmgen.Arg("met", "*notes"))
	dst, src, n, met, bias := fn.Load("dst"), fn.Load("src"), fn.Load("n"), fn.Load("met"), f.Data32("bias", slices.Repeat([]uint32{e4m3Bias}, 8)...)
	v, scales, least, most := fn.Y(), fn.Y().X(), fn.Y().X(), fn.Y().X()
	fn.I("VMOVDQU", met.Field("notes_min"), least)
	fn.I("VMOVDQU", met.Field("notes_max"), most)
	fn.CountDown(n, func() {
		fn.I("VMOVDQU", src.At(0), scales)
		fn.I("VPMINUB", scales, least, least)
		fn.I("VPMAXUB", scales, most, most)
		for i := range 2 {
			fn.I("VPMOVZXBD", src.At(8*i), v)
			fn.I("VPADDD", bias, v, v)
			fn.I("VPSLLD", asmgen.Imm(23), v, v)
			fn.I("VMOVUPS", v, dst.At(32*i))
		}
		fn.I("ADDQ", asmgen.Imm(16), src)
		fn.I("ADDQ", asmgen.Imm(64), dst)
	})
	fn.I("VMOVDQU", least, met.Field("notes_min"))
	fn.I("VMOVDQU", most, met.Field("notes_max"))
	fn.Return()
}
