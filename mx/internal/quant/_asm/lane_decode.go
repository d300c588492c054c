package main

// The AVX2 dequantization kernels for any format.

import "spmoe/tensor/asmgen"

// decodeLanes prints the decoder of blocks along rows or columns. Let m be the code without its
// sign, and e the larger of 1 and m's exponent field. The value is (m - (e-1)·2^mantissa)·2^(e-1)
// up to a constant, for subnormals too.
func decodeLanes(f *laneFile, name string, cols bool) {
	fn := f.Func(name, name+" takes n blocks.", append(pointer("dst", "codes", "scales"), asmgen.Arg("n", "int"), asmgen.Arg("d", "*Decoder"))...)
	dst, codes, scales, n, d := fn.Load("dst"), fn.Load("codes"), fn.Load("scales"), fn.Load("n"), fn.Load("d")
	magnitude, sign := broadcastY(fn, d.Field("Decoder_magnitude")), broadcastY(fn, d.Field("Decoder_sign"))
	infinity, numbers, bias := broadcastY(fn, d.Field("Decoder_infinity")), broadcastY(fn, d.Field("Decoder_numbers")), broadcastY(fn, d.Field("Decoder_bias"))
	mantissa, signShift, zero, less, scale := fn.Y(), fn.Y(), fn.Y(), fn.Y(), fn.Y()
	fn.I("VMOVQ", d.Field("Decoder_mantissa"), mantissa.X())
	fn.I("VMOVQ", d.Field("Decoder_signShift"), signShift.X())
	fn.I("VPXOR", zero, zero, zero)
	fn.I("VPCMPEQD", less, less, less)
	negative, m, e, value := fn.Y(), fn.Y(), fn.Y(), fn.Y()
	fn.CountDown(n, func() {
		if !cols {
			fn.I("VBROADCASTSS", scales.At(0), scale)
		}
		for i := range 4 {
			fn.I("VPMOVSXBD", codes.At(8*i), negative)
			fn.I("VPAND", magnitude, negative, m)
			fn.I("VPSLLD", signShift.X(), negative, negative)
			fn.I("VPAND", sign, negative, negative)

			fn.I("VPSRLD", mantissa.X(), m, e)
			fn.I("VPADDD", less, e, e)
			fn.I("VPMAXSD", zero, e, e)
			fn.I("VPSLLD", mantissa.X(), e, value)
			fn.I("VPSUBD", value, m, value)
			fn.I("VCVTDQ2PS", value, value)
			fn.I("VPADDD", bias, e, e)
			fn.I("VPSLLD", asmgen.Imm(23), e, e)
			fn.I("VMULPS", e, value, value)
			fn.I("VPXOR", negative, value, value)

			fn.I("VPCMPEQD", infinity, m, e)
			fn.I("VPAND", f.exponent, e, e)
			fn.I("VPOR", e, value, value)
			fn.I("VPCMPGTD", numbers, m, e)
			fn.I("VPBLENDVB", e, f.quiet, value, value)
			if cols {
				fn.I("VMULPS", scales.At(32*i), value, value)
			} else {
				fn.I("VMULPS", scale, value, value)
			}
			fn.I("VMOVUPS", value, dst.At(32*i))
		}
		fn.I("ADDQ", asmgen.Imm(128), dst)
		fn.I("ADDQ", asmgen.Imm(32), codes)
		fn.I("ADDQ", asmgen.Imm(map[bool]int64{false: 4, true: 128}[cols]), scales)
	})
	fn.Return()
}
