package main

// Decoding for products with few rows of a and rows of b that are neighbours in memory, for codes of E4M3 on AVX2: into a column panel
// of FP32, with as much of a fetch as a later call will read. A code's bits are those of an FP32 number that is too small by a power of
// two, subnormal numbers included.

import "spmoe/tensor/asmgen"

// E4M3 as FP32.
const (
	e4m3Field = 0x87f0_0000 // where sign, exponent and mantissa are
	e4m3Bias  = 120         // what a scale lacks to be the exponent of a factor: the numbers are too small by 2^120
)

// acrossE4M3 is the state of such a function.
type acrossE4M3 struct {
	acrossPanel
	stride3         asmgen.Reg
	factors         []asmgen.Vec // of 16 columns
	mask, magnitude asmgen.Vec   // masks
	most            asmgen.Vec   // the greatest magnitude
	x               []asmgen.Vec
	y               asmgen.Vec
}

func acrossE4M3AVX2(f *asmgen.File) {
	const name = "acrossE4M3AVX2"
	fn := f.Func(name, name+" decodes k (> 0) steps of 16 rows of b that are neighbours in memory, of each two the second first. It notes what it met.",
		asmgen.Arg("p", "*columnPanel"))
	p := &acrossE4M3{acrossPanel: newAcrossPanel(fn), stride3: fn.GP(), factors: fn.Ys(2), mask: fn.Y(), magnitude: fn.Y().X(), most: fn.Y().X(), x: fn.Ys(2), y: fn.Y().X()}
	t, scales, left, steps, quads := p.t, p.field(columnPanelScales), p.field(columnPanelK), fn.GP(), fn.GP()
	leastScale, mostScale, adjust, greatest := fn.Y().X(), fn.Y().X(), fn.Y().X(), fn.Y().X()
	fn.I("LEAQ", p.stride.At(0).Index(p.stride, 2), p.stride3)
	fn.I("VPBROADCASTD", f.Data32(name+"Field", e4m3Field), p.mask)
	fn.I("VPBROADCASTD", f.Data32(name+"Magnitude", 0x7f7f7f7f), p.magnitude)
	fn.I("VPBROADCASTD", f.Data32(name+"Adjust", 0x01010101*e4m3Bias), adjust)
	fn.I("VPBROADCASTD", f.Data32(name+"Greatest", 0xfefefefe), greatest)
	fn.I("VMOVDQU", t.At(columnPanelMin), leastScale)
	fn.I("VMOVDQU", t.At(columnPanelMax), mostScale)
	fn.I("VPXOR", p.most, p.most, p.most)
	block, rest, odd, done := fn.Label("block"), fn.Label("rest"), fn.Label("odd"), fn.Label("done")
	fn.Place(block)
	low, high := p.factors[0], p.factors[1]
	fn.I("VMOVDQU", scales.At(0), low.X())
	fn.I("VPMINUB", low.X(), leastScale, leastScale)
	fn.I("VPMAXUB", low.X(), mostScale, mostScale)
	fn.I("VPADDUSB", adjust, low.X(), low.X())
	fn.I("VPMINUB", greatest, low.X(), low.X())
	fn.I("VPSRLDQ", asmgen.Imm(8), low.X(), high.X())
	for _, v := range p.factors {
		fn.I("VPMOVZXBD", v.X(), v)
		fn.I("VPSLLD", asmgen.Imm(23), v, v)
	}
	fn.I("ADDQ", t.At(columnPanelScaleStride), scales)
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
	fn.I("VXORPS", p.x[0], p.x[0], p.x[0])
	fn.I("VMOVUPS", p.x[0], p.dst.At(0))
	fn.I("VMOVUPS", p.x[0], p.dst.At(32))
	p.step(0, 1)
	fn.Place(done)
	fn.I("TESTQ", left, left)
	fn.I("JNZ", block)
	fn.I("VMOVDQU", leastScale, t.At(columnPanelMin))
	fn.I("VMOVDQU", mostScale, t.At(columnPanelMax))
	fn.I("VPCMPEQB", p.magnitude, p.most, p.most) // NaN is all ones, and the greatest
	fn.I("VPOR", t.At(columnPanelBad), p.most, p.most)
	fn.I("VMOVDQU", p.most, t.At(columnPanelBad))
	p.finish()
}

// step decodes the nth step from here, n < 4, and puts it into the ith place.
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
	fn.I("VPAND", from, p.magnitude, p.y)
	fn.I("VPMAXUB", p.y, p.most, p.most)
}

func (p *acrossE4M3) advance(steps int) {
	p.fn.I("LEAQ", p.src.At(0).Index(p.stride, steps), p.src)
	p.fn.I("ADDQ", asmgen.Imm(int64(64*steps)), p.dst)
}
