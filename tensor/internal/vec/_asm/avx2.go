package main

// The parts that differ in AVX2. There are no mask registers, so tail masks are vectors that are
// computed for every use. An odd element of a bfloat16 row is moved separately.

import "spmoe/tensor/asmgen"

// countMask returns a mask of 32-bit elements. It selects element i if first+i < k.count >> shift,
// or if both are equal where equal is set.
func (k *kernel) countMask(first, shift int, equal bool) asmgen.Vec {
	count, limit := k.GP(), k.temp()
	k.I("MOVQ", k.count, count)
	if shift > 0 {
		k.I("SHRQ", asmgen.Imm(shift), count)
	}
	k.I("VMOVQ", count, limit.X())
	k.I("VPBROADCASTD", limit.X(), limit)
	k.Free(count)
	if equal {
		k.I("VPCMPEQD", k.file.indices.Plus(4*first), limit, limit)
	} else {
		k.I("VPCMPGTD", k.file.indices.Plus(4*first), limit, limit)
	}
	return limit
}

// halfMask selects the elements of one half that are in the tail.
func (k *kernel) halfMask(mask asmgen.Mask) asmgen.Vec {
	if mask == upper {
		return k.countMask(8, 0, false)
	}
	return k.countMask(0, 0, false)
}

// blended is merged for AVX2. It writes the result where the mask is set.
func (k *kernel) blended(mask asmgen.Mask, mnemonic string, ops ...asmgen.Operand) {
	last := len(ops) - 1
	dst := ops[last].(asmgen.Vec)
	result, where := k.op(mnemonic, ops[:last]...), k.halfMask(mask)
	k.I("VBLENDVPS", where, result, dst, dst)
	k.release(result, where)
}

// loadWideAVX2 reads 8 FP32.
func (k *kernel) loadWideAVX2(m asmgen.Mem, h int, v asmgen.Vec) {
	if !k.masked {
		k.I("VMOVUPS", m, v)
		return
	}
	where := k.halfMask(halves[h])
	k.I("VMASKMOVPS", m, where, v)
	k.release(where)
}

// storeWideAVX2 writes 8 FP32.
func (k *kernel) storeWideAVX2(v asmgen.Vec, m asmgen.Mem, h int) {
	if !k.masked {
		k.I("VMOVUPS", v, m)
		return
	}
	where := k.halfMask(halves[h])
	k.I("VMASKMOVPS", v, where, m)
	k.release(where)
}

// loadNarrowAVX2 reads 16 bfloat16. In a tail, the missing ones are zero.
func (k *kernel) loadNarrowAVX2(m asmgen.Mem) asmgen.Vec {
	v := k.temp()
	if !k.masked {
		k.I("VMOVDQU", m, v)
		return v
	}
	whole := k.countMask(0, 1, false)
	k.I("VPMASKMOVD", m, whole, v)
	k.release(whole)
	k.ifOdd(func() {
		last, at := k.GP(), k.temp()
		k.I("LEAQ", m, last)
		k.I("MOVWLZX", last.At(-2).Index(k.count, 2), last)
		k.I("VMOVQ", last, at.X())
		k.I("VPBROADCASTD", at.X(), at)
		where := k.countMask(0, 1, true)
		k.I("VPAND", where, at, at)
		k.I("VPOR", at, v, v)
		k.release(at, where)
		k.Free(last)
	})
	return v
}

// storeNarrowAVX2 writes 16 bfloat16, or those of the tail.
func (k *kernel) storeNarrowAVX2(v asmgen.Vec, m asmgen.Mem) {
	if !k.masked {
		k.I("VMOVDQU", v, m)
		return
	}
	whole := k.countMask(0, 1, false)
	k.I("VPMASKMOVD", v, whole, m)
	k.release(whole)
	k.ifOdd(func() {
		place, last, at := k.GP(), k.GP(), k.temp()
		k.I("LEAQ", m, place)
		k.I("MOVQ", k.count, last)
		k.I("SHRQ", asmgen.Imm(1), last)
		k.I("VMOVQ", last, at.X())
		k.I("VPERMD", v, at, at)
		k.I("VMOVQ", at.X(), last)
		k.I("MOVW", last, place.At(-2).Index(k.count, 2))
		k.release(at)
		k.Free(place, last)
	})
}

// ifOdd prints code that executes body only if an odd number of elements, fewer than 16, is left
// for this copy.
func (k *kernel) ifOdd(body func()) {
	even := k.Label("even")
	k.I("CMPQ", k.count, asmgen.Imm(16))
	k.I("JGE", even)
	k.I("TESTQ", asmgen.Imm(1), k.count)
	k.I("JEQ", even)
	body()
	k.Place(even)
}

// roundedAVX2 is rounded for AVX2.
func (k *kernel) roundedAVX2(x asmgen.Vec) asmgen.Vec {
	sum := k.op("VPSRLD", asmgen.Imm(16), x)
	k.I("VPAND", k.one, sum, sum)
	k.I("VPADDD", x, sum, sum)
	k.I("VPADDD", k.half, sum, sum)
	if k.hasFP32 {
		const quietBit = 1 << 22
		quiet := k.op("VPOR", k.word(quietBit), x)
		k.whereNaN(x, quiet, sum)
		k.release(quiet)
	}
	return sum
}

// whereNaN replaces the elements of dst by those of v where x is NaN.
func (k *kernel) whereNaN(x, v, dst asmgen.Vec) {
	const unordered = 3
	isNaN := k.op("VCMPPS", asmgen.Imm(unordered), x, x)
	k.I("VBLENDVPS", isNaN, v, dst, dst)
	k.release(isNaN)
}

// packAVX2 packs the upper halves of the elements of x and y into x.
func (k *kernel) packAVX2(x, y asmgen.Vec) {
	k.I("VPSRLD", asmgen.Imm(16), x, x)
	if k.isSplit {
		const oddWords = 0xaa
		k.I("VPBLENDW", asmgen.Imm(oddWords), y, x, x)
		return
	}
	const middleSwapped = 0xd8
	k.I("VPSRLD", asmgen.Imm(16), y, y)
	k.I("VPACKUSDW", y, x, x)
	k.I("VPERMQ", asmgen.Imm(middleSwapped), x, x)
}

// powerAVX2 looks up 2 to the power of the fraction of n. n includes shifter.
func (k *kernel) powerAVX2(n asmgen.Vec) asmgen.Vec {
	low, high := k.op("VPERMPS", k.file.powers, n), k.op("VPERMPS", k.file.powers.Plus(32), n)
	inHigh := k.op("VPSLLD", asmgen.Imm(28), n)
	k.I("VBLENDVPS", inHigh, high, low, low)
	k.release(high, inHigh)
	return low
}

// scaleAVX2 multiplies x by 2 to the power of the whole part of n, in two factors. n includes
// shifter and is overwritten.
func (k *kernel) scaleAVX2(n, x asmgen.Vec) {
	const bias = 127
	k.I("VPSRAD", asmgen.Imm(4), n, n)
	k.I("VPSUBD", k.word(shifter>>4), n, n)
	half := k.op("VPSRAD", asmgen.Imm(1), n)
	k.I("VPSUBD", half, n, n)
	for _, power := range []asmgen.Vec{half, n} {
		k.I("VPADDD", k.word(bias), power, power)
		k.I("VPSLLD", asmgen.Imm(23), power, power)
		k.I("VMULPS", power, x, x)
	}
	k.release(half)
}

// scaleNormalAVX2 is scaleAVX2 for results that are normal numbers.
func (k *kernel) scaleNormalAVX2(n, x asmgen.Vec) {
	k.I("VPSRLD", asmgen.Imm(4), n, n)
	k.I("VPSLLD", asmgen.Imm(23), n, n)
	k.I("VPADDD", n, x, x)
}
