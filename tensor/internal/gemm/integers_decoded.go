package gemm

// MXINT8 on tiles for BF16. A code has at most 8 significant bits, as BF16 has, and the sum of the
// products of a block has at most 20. So a chain of FP32 multiply-adds that starts at zero adds up
// a block without rounding, if all its products are normal numbers. Tiles add such chains to the
// result, block by block, with one rounding. That is the definition of an integer product. The one
// exception is a product that is added to a subnormal c, or to one that it nearly cancels: tiles
// read and write subnormal numbers as zero.
//
// Tiles of integers are no faster: they would sum 64 codes, but a scale belongs to 32. And vector
// instructions must scale each of their sums.

// multiplyIntegers computes a·bᵀ of MXINT8 by the fastest kernel.
func (r *recipe) multiplyIntegers(s *Scratch, sum, out View, a, b operand, m mode, slow fallback) {
	x, y, ok := r.decoders.both(a.scaled(), b.scaled())
	if !ok || !r.bf16.packing.tiles || r.integers.readsInPlace(a, b, m) {
		r.integers.multiplyInt8(s, sum, out, a, b, m, slow)
		return
	}
	m.exactBlocks = true
	r.bf16.multiply(s, sum, out, x, y, m, func(sum, out View, a, b Scaled, m mode) {
		m.exactBlocks = false
		x, y, _ := int8Operands(a, b)
		r.integers.multiplyInt8(s, sum, out, x, y, m, slow)
	})
}

// readsInPlace reports whether a kernel for few rows of a multiplies a and b.
func (f *microkernel) readsInPlace(a, b operand, m mode) bool {
	few := f.packing.records.few
	return few != nil && m.span == 0 && few.accepts(a, b, m)
}

// blocksAreExact reports whether all products of two packed blocks of MXINT8 and all sums of a
// block's products are zero or normal FP32 numbers. The blocks x and y were decoded exactly.
func blocksAreExact(a, b scaleRange, x, y operand) bool {
	return sumsAreNormal(a, b) || sumsAreNormal(x.scaleRange(), y.scaleRange())
}

// sumsAreNormal is blocksAreExact for all scales in these ranges. A product of codes is a multiple
// of 2^-12 and a sum of 32 is at most 2^7, times the scales.
func sumsAreNormal(a, b scaleRange) bool {
	const bias = 2 * 127
	return a.least+b.least >= bias+12-126 && a.most+b.most <= bias+127-7
}

// scaleRange returns the range of the scales except those outside the lookup's range, which belong
// to blocks of zeros.
func (o operand) scaleRange() scaleRange {
	r := scaleRange{127, 127}
	for i := range o.scales.Rows {
		for j := range o.scales.Cols {
			if x := *at[uint8](o.scales, i, j); x >= o.lookup.minScale && x <= o.lookup.maxScale {
				r = scaleRange{min(r.least, int(x)), max(r.most, int(x))}
			}
		}
	}
	return r
}
