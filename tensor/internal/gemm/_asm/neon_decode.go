package main

// Decoding of 8-bit codes to BF16 on NEON, 16 codes at a time.
//
// A code of a minifloat is moved to the place of a BF16: its sign to the sign, its exponent and
// mantissa to the lower bits of exponent and the upper bits of mantissa. That number is too small
// by a constant power of two, also for subnormal codes. Two multiplications in FP32 are exact: by
// that power, and by the scale.

import (
	"fmt"
	"math"

	"spmoe/tensor/asmgen"
)

// neonCode is a format of codes.
type neonCode struct {
	name  string
	right int64   // bits from the code in the upper byte of a word to its place
	place uint32  // mask of that place, in both words
	power float64 // what the number there lacks
	spare uint32  // finite magnitudes end at 0x7f less this number, which every byte holds
}

var neonCodes = []neonCode{
	{"E4M3", 4, 0x87f0_87f0, 0x1p120, 0x01010101},
	{"E5M2", 3, 0x8fe0_8fe0, 0x1p112, 0x04040404},
}

func decodeNEON(f *asmgen.File) {
	for _, c := range neonCodes {
		c.along(f)
		c.across(f)
	}
}

// neonDecoder is the frame of a function.
type neonDecoder struct {
	neonCode
	fn                            *asmgen.Func
	d, codes, scales, dst, temp   asmgen.Reg
	zero, power, place, magnitude asmgen.Neon
	least, most, largest          asmgen.Neon // of the scales, and of the magnitudes of codes
}

func (c neonCode) begin(f *asmgen.File, name, doc string) *neonDecoder {
	fn := f.Func(name, name+doc, asmgen.Arg("d", "*decoding"))
	k := &neonDecoder{neonCode: c, fn: fn, d: fn.Load("d"), temp: fn.GP()}
	k.codes, k.scales, k.dst = k.field("decoding_codes"), k.field("decoding_scales"), k.field("decoding_dst")
	k.zero, k.power, k.place, k.magnitude = fn.V(), fn.V(), fn.V(), fn.V()
	k.least, k.most, k.largest = fn.V(), fn.V(), fn.V()
	k.fill(k.zero, 0)
	k.fill(k.power, math.Float32bits(float32(c.power)))
	k.fill(k.place, c.place)
	k.fill(k.magnitude, 0x7f7f7f7f)
	k.fill(k.largest, 0)
	fn.I("FMOVQ", k.note("min"), k.least)
	fn.I("FMOVQ", k.note("max"), k.most)
	return k
}

// field loads a field of the arguments.
func (k *neonDecoder) field(at asmgen.Field) asmgen.Reg {
	r := k.fn.GP()
	k.fn.I("MOVD", k.d.Field(at), r)
	return r
}

func (k *neonDecoder) note(name asmgen.Field) asmgen.Mem {
	return k.d.Field("decoding_notes+notes_" + name)
}

// fill sets every dword of v to bits.
func (k *neonDecoder) fill(v asmgen.Neon, bits uint32) {
	k.fn.I("MOVD", asmgen.Imm(int64(bits)), k.temp)
	k.fn.I("VDUP", k.temp, v.S4())
}

// noteScales notes the scales in the bytes of v.
func (k *neonDecoder) noteScales(v asmgen.Neon) {
	k.fn.I("VUMIN", v.B16(), k.least.B16(), k.least.B16())
	k.fn.I("VUMAX", v.B16(), k.most.B16(), k.most.B16())
}

// finish stores the notes and returns. A magnitude that is not finite carries into the upper bit.
func (k *neonDecoder) finish() {
	fn := k.fn
	fn.I("FMOVQ", k.least, k.note("min"))
	fn.I("FMOVQ", k.most, k.note("max"))
	k.fill(k.least, k.spare)
	fn.I("FMOVQ", k.note("bad"), k.most)
	fn.I("VADD", k.least.B16(), k.largest.B16(), k.largest.B16())
	fn.I("VUSHR", asmgen.Imm(7), k.largest.B16(), k.largest.B16())
	fn.I("VORR", k.largest.B16(), k.most.B16(), k.most.B16())
	fn.I("FMOVQ", k.most, k.note("bad"))
	fn.Return()
}

// decode decodes 16 codes at k.codes + at to k.dst + 2·at. factors holds one scale for each four.
func (k *neonDecoder) decode(at int, factors [4]asmgen.Neon, vs []asmgen.Neon) {
	fn, code, halves, words := k.fn, vs[0], vs[1:3], vs[3:7]
	fn.I("FMOVQ", k.codes.At(at), code)
	fn.I("VZIP1", code.B16(), k.zero.B16(), halves[0].B16())
	fn.I("VZIP2", code.B16(), k.zero.B16(), halves[1].B16())
	fn.I("VAND", k.magnitude.B16(), code.B16(), code.B16())
	fn.I("VUMAX", code.B16(), k.largest.B16(), k.largest.B16())
	for i, half := range halves {
		fn.I("VSSHR", asmgen.Imm(k.right), half.H8(), half.H8())
		fn.I("VAND", k.place.B16(), half.B16(), half.B16())
		fn.I("VZIP1", half.H8(), k.zero.H8(), words[2*i].H8())
		fn.I("VZIP2", half.H8(), k.zero.H8(), words[2*i+1].H8())
	}
	for i, v := range words {
		fn.I("VFMUL", k.power.S4(), v.S4(), v.S4())
		fn.I("VFMUL", factors[i].S4(), v.S4(), v.S4())
	}
	for i, half := range halves {
		fn.I("VUZP2", words[2*i+1].H8(), words[2*i].H8(), half.H8())
	}
	fn.I("FSTPQ", asmgen.Pair{halves[0], halves[1]}, k.dst.At(2*at))
}

// along decodes rows that are contiguous along k.
func (c neonCode) along(f *asmgen.File) {
	k := c.begin(f, "decodeAlong"+c.name+"NEON", fmt.Sprintf(" decodes rows (> 0) rows of count (> 0) codes of %s, in whole blocks contiguous along k. It notes what it meets.", c.name))
	fn, rows, blocks := k.fn, k.field("decoding_rows"), k.fn.GP()
	starts, vs, factor, scale := []asmgen.Reg{fn.GP(), fn.GP(), fn.GP()}, fn.Vs(7), fn.V(), fn.V()
	row := []asmgen.Reg{k.codes, k.scales, k.dst}
	fn.CountDown(rows, func() {
		for i, r := range row {
			fn.I("MOVD", r, starts[i])
		}
		fn.I("MOVD", k.d.Field("decoding_count"), blocks)
		fn.I("LSR", asmgen.Imm(5), blocks)
		fn.CountDown(blocks, func() {
			fn.I("MOVBU", k.scales.At(0), k.temp)
			fn.I("VDUP", k.temp, scale.B16())
			fn.I("LSL", asmgen.Imm(23), k.temp)
			fn.I("VDUP", k.temp, factor.S4())
			k.noteScales(scale)
			for at := 0; at < 32; at += 16 {
				k.decode(at, [4]asmgen.Neon{factor, factor, factor, factor}, vs)
			}
			fn.I("ADD", asmgen.Imm(32), k.codes)
			fn.I("ADD", asmgen.Imm(1), k.scales)
			fn.I("ADD", asmgen.Imm(64), k.dst)
		})
		for i, stride := range []asmgen.Field{"decoding_codeStride", "decoding_scaleStride", "decoding_dstStride"} {
			fn.I("MOVD", k.d.Field(stride), k.temp)
			fn.I("ADD", k.temp, starts[i], row[i])
		}
	})
	k.finish()
}

// across decodes 16 codes that are adjacent across k, at each step of k.
func (c neonCode) across(f *asmgen.File) {
	k := c.begin(f, "decodeAcross"+c.name+"NEON", fmt.Sprintf(" decodes 16 codes of %s that are adjacent across k, at each of rows (> 0) steps of k. It notes what it meets.", c.name))
	fn, left, steps := k.fn, k.field("decoding_rows"), k.fn.GP()
	codeStride, dstStride := k.field("decoding_codeStride"), k.field("decoding_dstStride")
	vs, scale := fn.Vs(7), fn.V()
	factors := [4]asmgen.Neon(fn.Vs(4))
	next, whole, done := fn.Label("next"), fn.Label("whole"), fn.Label("done")
	fn.Place(next)
	fn.I("FMOVQ", k.scales.At(0), scale)
	k.noteScales(scale)
	fn.I("VZIP1", k.zero.B16(), scale.B16(), vs[0].B16())
	fn.I("VZIP2", k.zero.B16(), scale.B16(), vs[1].B16())
	for i, v := range factors {
		fn.I([]string{"VZIP1", "VZIP2"}[i%2], k.zero.H8(), vs[i/2].H8(), v.H8())
		fn.I("VSHL", asmgen.Imm(23), v.S4(), v.S4())
	}
	fn.I("MOVD", asmgen.Imm(32), steps)
	fn.I("SUBS", asmgen.Imm(32), left)
	fn.I("BGE", whole)
	fn.I("ADD", left, steps)
	fn.Place(whole)
	fn.CountDown(steps, func() {
		k.decode(0, factors, vs)
		fn.I("ADD", codeStride, k.codes)
		fn.I("ADD", dstStride, k.dst)
	})
	fn.I("CMP", asmgen.Imm(0), left)
	fn.I("BLE", done)
	fn.I("MOVD", k.d.Field("decoding_scaleStride"), k.temp)
	fn.I("ADD", k.temp, k.scales)
	fn.I("JMP", next)
	fn.Place(done)
	k.finish()
}
