package main

// Decoding of E4M3 codes on AVX2 for products with few rows of a and adjacent rows of b. Codes are
// decoded into a column panel of FP32. At the same time the first row panel is multiplied and the
// same number of bytes is prefetched for a later call. A code's bits are those of an FP32 number
// that is too small by a power of two. This holds for subnormals too.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// E4M3 as FP32.
const (
	e4m3Field = 0x87f0_0000 // positions of sign, exponent and mantissa
	// Added to a scale, it gives the exponent of a factor: the numbers are too small by 2^120.
	e4m3Bias = 120
)

// acrossE4M3Rows is the largest number of rows of a panel whose sums fit in the registers.
const acrossE4M3Rows = 4

func acrossE4M3AVX2(f *asmgen.File) {
	all := func(name string, word uint32) asmgen.Mem { return f.Data32("acrossE4M3"+name, word, word, word, word) }
	data := acrossE4M3Data{all("Field", e4m3Field), all("Magnitude", 0x7f7f7f7f), all("Adjust", 0x01010101*e4m3Bias), all("Greatest", 0xfefefefe)}
	for rows := range acrossE4M3Rows + 1 {
		data.decode(f, rows)
	}
}

// acrossE4M3Data holds constants of 16 bytes.
type acrossE4M3Data struct{ field, magnitude, adjust, greatest asmgen.Mem }

// acrossE4M3 is the state of such a function.
type acrossE4M3 struct {
	acrossPanel
	stride3         asmgen.Reg
	factors         []asmgen.Vec // for 16 columns
	mask, magnitude asmgen.Vec   // masks
	most            asmgen.Vec   // the largest magnitude
	x               []asmgen.Vec
	y               asmgen.Vec
	a               asmgen.Reg // of the row panel
	sums            [][]asmgen.Vec
}

// decode generates the function that also multiplies a panel of rows rows, or no panel if rows is
// 0.
func (data acrossE4M3Data) decode(f *asmgen.File, rows int) {
	name, also, args := "acrossE4M3AVX2", "", []asmgen.Param{asmgen.Arg("p", "*columnPanel")}
	if rows > 0 {
		name, also, args = fmt.Sprintf("acrossE4M3x%dAVX2", rows), fmt.Sprintf(" It multiplies them with the row panel of %d rows at t.a.", rows), append(args, asmgen.Arg("t", "*tile"))
	}
	fn := f.Func(name, name+" decodes k (> 0) steps of 16 rows of b that are adjacent in memory, of every two the second first. It records scales and NaN in the notes."+also, args...)
	p := &acrossE4M3{acrossPanel: newAcrossPanel(fn), stride3: fn.GP(), factors: fn.Ys(2), mask: fn.Y(), magnitude: fn.Y().X(), most: fn.Y().X(), x: fn.Ys(2), y: fn.Y()}
	t, scales, left, steps, quads := p.t, p.field("columnPanel_scales"), p.field("columnPanel_k"), fn.GP(), fn.GP()
	fn.I("LEAQ", p.stride.At(0).Index(p.stride, 2), p.stride3)
	fn.I("VPBROADCASTD", data.field, p.mask)
	fn.I("VMOVDQU", data.magnitude, p.magnitude)
	fn.I("VPXOR", p.most, p.most, p.most)
	if rows > 0 {
		p.begin(rows, steps)
	}
	block, rest, odd, done := fn.Label("block"), fn.Label("rest"), fn.Label("odd"), fn.Label("done")
	fn.Place(block)
	low, high := p.factors[0], p.factors[1]
	fn.I("VMOVDQU", scales.At(0), low.X())
	for _, note := range []struct {
		op string
		at asmgen.Field
	}{{"VPMINUB", "columnPanel_notes+notes_min"}, {"VPMAXUB", "columnPanel_notes+notes_max"}} {
		fn.I(note.op, t.Field(note.at), low.X(), high.X())
		fn.I("VMOVDQU", high.X(), t.Field(note.at))
	}
	fn.I("VPADDUSB", data.adjust, low.X(), low.X())
	fn.I("VPMINUB", data.greatest, low.X(), low.X())
	fn.I("VPSRLDQ", asmgen.Imm(8), low.X(), high.X())
	for _, v := range p.factors {
		fn.I("VPMOVZXBD", v.X(), v)
		fn.I("VPSLLD", asmgen.Imm(23), v, v)
	}
	fn.I("ADDQ", t.Field("columnPanel_scaleStride"), scales)
	takeBlock(fn, left, steps)
	fn.I("MOVQ", steps, quads)
	fn.I("SHRQ", asmgen.Imm(2), quads)
	fn.I("JZ", rest)
	fn.CountDown(quads, func() {
		for i, step := range []int{1, 0, 3, 2} {
			p.step(step, i)
		}
		p.fetchLine()
		p.advance(4)
	})
	fn.Place(rest)
	fn.I("TESTQ", asmgen.Imm(2), steps)
	fn.I("JZ", odd)
	p.step(1, 0)
	p.step(0, 1)
	p.advance(2)
	fn.Place(odd)
	fn.I("TESTQ", asmgen.Imm(1), steps)
	fn.I("JZ", done)
	for j, x := range p.x {
		fn.I("VXORPS", x, x, x)
		fn.I("VMOVUPS", x, p.dst.At(32*j))
	}
	p.multiply(0)
	p.step(0, 1)
	fn.Place(done)
	fn.I("TESTQ", left, left)
	fn.I("JNZ", block)
	if rows > 0 {
		p.eachSum(steps, func(v asmgen.Vec, at asmgen.Mem) { fn.I("VMOVUPS", v, at) })
	}
	fn.I("VPCMPEQB", p.magnitude, p.most, p.most) // NaN is all ones and the largest magnitude
	fn.I("VPOR", t.Field("columnPanel_notes+notes_bad"), p.most, p.most)
	fn.I("VMOVDQU", p.most, t.Field("columnPanel_notes+notes_bad"))
	p.finish()
}

// begin allocates registers for the sums of rows rows, and loads the sums or sets them to zero.
func (p *acrossE4M3) begin(rows int, free asmgen.Reg) {
	fn, clear, ready := p.fn, p.fn.Label("clear"), p.fn.Label("ready")
	for range rows {
		p.sums = append(p.sums, fn.Ys(2))
	}
	p.a = fn.GP()
	fn.I("MOVQ", fn.Slot("t"), free)
	fn.I("MOVQ", free.Field("tile_a"), p.a)
	fn.I("CMPQ", free.Field("tile_startAtSum"), asmgen.Imm(0))
	fn.I("JEQ", clear)
	p.eachSum(free, func(v asmgen.Vec, at asmgen.Mem) { fn.I("VMOVUPS", at, v) })
	fn.I("JMP", ready)
	fn.Place(clear)
	for _, row := range p.sums {
		for _, v := range row {
			fn.I("VXORPS", v, v, v)
		}
	}
	fn.Place(ready)
}

// eachSum calls body with each sum and its address.
func (p *acrossE4M3) eachSum(sum asmgen.Reg, body func(v asmgen.Vec, at asmgen.Mem)) {
	fn, stride := p.fn, p.fn.GP()
	fn.I("MOVQ", fn.Slot("t"), sum)
	fn.I("MOVQ", sum.Field("tile_sumStride"), stride)
	fn.I("MOVQ", sum.Field("tile_sum"), sum)
	for _, row := range p.sums {
		for j, v := range row {
			body(v, sum.At(32*j))
		}
		fn.I("ADDQ", stride, sum)
	}
	fn.Free(stride)
}

// step decodes the nth step from here (n < 4), stores it as the ith and multiplies it.
func (p *acrossE4M3) step(n, i int) {
	fn, from := p.fn, p.src.At(0)
	switch n {
	case 1, 2:
		from = p.src.At(0).Index(p.stride, n)
	case 3:
		from = p.src.At(0).Index(p.stride3, 1)
	}
	for j, x := range p.x {
		fn.I("VPMOVSXBD", from.Plus(8*j), x)
		fn.I("VPSLLD", asmgen.Imm(20), x, x)
		fn.I("VPAND", p.mask, x, x)
		fn.I("VMULPS", p.factors[j], x, x)
		fn.I("VMOVUPS", x, p.dst.At(64*i+32*j))
	}
	fn.I("VPAND", from, p.magnitude, p.y.X())
	fn.I("VPMAXUB", p.y.X(), p.most, p.most)
	p.multiply(i)
}

// multiply multiplies the ith step, which x holds.
func (p *acrossE4M3) multiply(i int) {
	for r, sums := range p.sums {
		p.fn.I("VBROADCASTSS", p.a.At(4*(i*len(p.sums)+r)), p.y)
		for j, x := range p.x {
			p.fn.I("VFMADD231PS", x, p.y, sums[j])
		}
	}
}

func (p *acrossE4M3) advance(steps int) {
	p.fn.I("LEAQ", p.src.At(0).Index(p.stride, steps), p.src)
	p.fn.I("ADDQ", asmgen.Imm(int64(64*steps)), p.dst)
	if n := len(p.sums); n > 0 {
		p.fn.I("ADDQ", asmgen.Imm(int64(4*n*steps)), p.a)
	}
}
