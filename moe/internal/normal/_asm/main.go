// Command asm generates the assembly of package normal.
package main

import (
	"math"

	"spmoe/tensor/asmgen"
)

func main() {
	f := asmgen.NewFile("normal", "go run ./_asm", "amd64 && !purego")
	draw(f)
	asmgen.Main(map[string]string{"normal_avx512_amd64.s": f.Asm(), "normal_avx512_amd64.go": f.Stubs()})
}

// kernel is a function on vectors of 8 double words, whose constants are broadcast from memory.
type kernel struct {
	*asmgen.Func
	file *asmgen.File
}

// with prints an instruction whose first source is a constant.
func (k kernel) with(mnemonic, name string, bits uint64, ops ...asmgen.Operand) {
	constant := k.file.Data32(name, words(bits)...)
	at := 0
	if _, ok := ops[0].(asmgen.Imm); ok {
		at = 1
	}
	k.I(mnemonic+".BCST", append(append(ops[:at:at], constant), ops[at:]...)...)
}

// float is with for a floating-point constant.
func (k kernel) float(mnemonic, name string, c float64, ops ...asmgen.Operand) {
	k.with(mnemonic, name, math.Float64bits(c), ops...)
}

const (
	golden  = 0x9e3779b97f4a7c15
	dropped = 1<<29 - 1 // bits of FP64 that FP32 does not have
	margin  = 1 << 16   // a relative 2^-36 or less
)

// draw prints the generator.
func draw(f *asmgen.File) {
	fn := f.Func("drawAVX512", "drawAVX512 is Draw.", asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("counter", "uint64"),
		asmgen.Arg("std", "float64"), asmgen.Arg("cut", "float64"), asmgen.Result("unsure", "uint64"))
	k := kernel{fn, f}
	dst, unsure, lanes, n := fn.Load("dst"), fn.GP(), fn.GP(), fn.GP()
	counter, std, cut := fn.Z(), fn.Z(), fn.Z()
	fn.I("VPBROADCASTQ", fn.Slot("counter"), counter)
	fn.I("VBROADCASTSD", fn.Slot("std"), std)
	fn.I("VBROADCASTSD", fn.Slot("cut"), cut)
	var steps []uint32
	for i := range uint64(8) {
		steps = append(steps, words(i*golden)...)
	}
	fn.I("VPADDQ", f.Data32("steps", steps...), counter, counter)
	fn.I("XORQ", unsure, unsure)
	fn.I("MOVQ", asmgen.Imm(8), n)
	fn.CountDown(n, func() {
		bits := k.mix(counter)
		next := uint64(8 * golden % (1 << 64))
		k.with("VPADDQ", "next", next, counter, counter)
		z, cos := k.radius(bits), k.cosine(bits)
		fn.I("VMULPD", cos, z, z)
		fn.I("VMULPD", std, z, z)
		k.doubt(z, cos, cut, lanes)
		fn.I("SHRQ", asmgen.Imm(8), unsure)
		fn.I("SHLQ", asmgen.Imm(56), lanes)
		fn.I("ORQ", lanes, unsure)
		fn.I("VCVTPD2PS", z, z.Y())
		fn.I("VMOVUPS", z.Y(), dst.At(0))
		fn.I("ADDQ", asmgen.Imm(32), dst)
		fn.Free(bits, z, cos)
	})
	fn.I("MOVQ", unsure, fn.Slot("unsure"))
	fn.Return()
}

// mix returns the finalizer of SplitMix64.
func (k kernel) mix(counter asmgen.Vec) asmgen.Vec {
	x, t := k.Z(), k.Z()
	k.with("VPADDQ", "golden", golden, counter, x)
	for i, step := range []struct {
		shift      int64
		multiplier uint64
	}{{30, 0xbf58476d1ce4e5b9}, {27, 0x94d049bb133111eb}, {31, 0}} {
		k.I("VPSRLQ", asmgen.Imm(step.shift), x, t)
		k.I("VPXORQ", t, x, x)
		if step.multiplier != 0 {
			k.with("VPMULLQ", []string{"multiplier0", "multiplier1"}[i], step.multiplier, x, x)
		}
	}
	k.Free(t)
	return x
}

// radius returns sqrt(-2·log u) for u = (high word + 1/2)/2^32. With u = m·2^e, m from 3/4 to 3/2
// and s = (m-1)/(m+1), the logarithm is e·ln 2 + 2·(s + s^3/3 + s^5/5 + ...), for u near 1 as well.
func (k kernel) radius(bits asmgen.Vec) asmgen.Vec {
	u, m, e, s := k.Z(), k.Z(), k.Z(), k.Z()
	k.I("VPSRLQ", asmgen.Imm(31), bits, u)
	k.with("VPORQ", "half", 1, u, u)
	k.I("VCVTQQ2PD", u, u)
	k.float("VMULPD", "unit", 1./(1<<33), u, u)
	const threeQuarters = 3 // and to twice as much
	k.I("VGETMANTPD", asmgen.Imm(threeQuarters), u, m)
	k.I("VPSUBQ", m, u, e)
	k.I("VPSRAQ", asmgen.Imm(52), e, e)
	k.I("VCVTQQ2PD", e, e)
	k.float("VSUBPD", "one", 1, m, s)
	k.float("VADDPD", "plusOne", 1, m, m)
	k.I("VDIVPD", m, s, s)
	k.I("VMULPD", s, s, m)
	sum := k.series("log", m, func(i int) float64 { return 1 / float64(2*i+1) }, 10)
	k.I("VMULPD", s, sum, sum)
	k.float("VMULPD", "log2", -2*math.Ln2, e, e)
	k.float("VFMADD132PD", "minusFour", -4, e, sum)
	k.I("VSQRTPD", sum, sum)
	k.Free(u, m, e, s)
	return sum
}

// cosine returns the cosine of 2π·v for v = low word/2^32: the sine of y = π·(1/2 - |2v|), with v
// from -1/2 to 1/2. The difference is exact, so that small cosines are as accurate as others.
func (k kernel) cosine(bits asmgen.Vec) asmgen.Vec {
	y, square := k.Z(), k.Z()
	k.I("VPSLLQ", asmgen.Imm(32), bits, y)
	k.I("VPSRAQ", asmgen.Imm(32), y, y)
	k.I("VPABSQ", y, y)
	k.I("VCVTQQ2PD", y, y)
	k.float("VSUBPD", "quarterTurn", 1<<30, y, y)
	k.float("VMULPD", "perTurn", -2*math.Pi/(1<<32), y, y)
	k.I("VMULPD", y, y, square)
	sum := k.series("sin", square, func(i int) float64 {
		c := 1.
		for n := 2; n < 2*i+2; n++ {
			c /= float64(n)
		}
		return c * float64(1-i%2*2)
	}, 11)
	k.I("VMULPD", y, sum, sum)
	k.Free(y, square)
	return sum
}

// series returns the sum of coefficient(i)·x^i for i below n.
func (k kernel) series(name string, x asmgen.Vec, coefficient func(int) float64, n int) asmgen.Vec {
	sum := k.Z()
	k.I("VBROADCASTSD", k.file.Data32(name, words(math.Float64bits(coefficient(n-1)))...), sum)
	for i := n - 2; i >= 0; i-- {
		k.float("VFMADD213PD", name+string(rune('a'+i)), coefficient(i), x, sum)
	}
	return sum
}

func words(bits uint64) []uint32 { return []uint32{uint32(bits), uint32(bits >> 32)} }

// doubt sets lanes to the bits of those elements that may not be what plain Go gives: the cosine is
// so small that the rounding of Go's argument shows, FP32 rounds z and a neighbour differently, or
// the cut may exclude z.
func (k kernel) doubt(z, cos, cut asmgen.Vec, lanes asmgen.Reg) {
	const less, lessOrEqual, notLess = 1, 2, 5
	t, any, some := k.Z(), asmgen.K(1), asmgen.K(2)
	k.with("VPANDQ", "cosMagnitude", 1<<63-1, cos, t)
	k.float("VCMPPD", "smallest", 1./1024, asmgen.Imm(less), t, any)
	k.with("VPANDQ", "magnitude", 1<<63-1, z, t)
	k.I("VCMPPD", asmgen.Imm(notLess), cut, t, some)
	k.I("KORW", some, any, any)
	k.with("VPANDQ", "fraction", dropped, z, t)
	k.with("VPSUBQ", "tie", (dropped+1)/2-margin, t, t)
	k.with("VPCMPUQ", "margins", 2*margin, asmgen.Imm(lessOrEqual), t, some)
	k.I("KORW", some, any, any)
	k.I("KMOVW", any, lanes)
	k.Free(t)
}
