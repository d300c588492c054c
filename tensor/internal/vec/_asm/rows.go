package main

// Loads and stores of rows. A body holds 32 elements of a row in a pair of registers, or 16 in
// AVX2. In natural order the registers hold the first and the second half. In split order they hold
// the elements of even and of odd index. Split order is cheaper if a kernel stores only bfloat16,
// because even and odd elements are the lower and upper halves of the double words of a bfloat16
// vector. Rounding uses integer instructions, because VCVTNEPS2BF16 would flush subnormals.

import "spmoe/tensor/asmgen"

// elem is the element type of a row.
type elem int

const (
	fp32 elem = 4 // bytes
	bf16 elem = 2
)

// variants are the two forms of most kernels: FP32 in all rows, or BF16 in the rows of
// activations.
var variants = []elem{fp32, bf16}

// kernelName returns the name of a kernel for an element type.
func kernelName(name string, e elem) string {
	if e == bf16 {
		return name + "16"
	}
	return name
}

type row struct {
	base    asmgen.Reg
	elem    elem
	isSplit bool // weights in the order of Split
}

// rowConstants are the constants for loading and storing rows. split, row and rounding load them.
type rowConstants struct {
	isSplit                     bool
	upperHalf                   asmgen.Operand // mask of the odd elements
	even, odd                   asmgen.Vec     // indices of the elements in two registers
	hasFP32                     bool
	lowest, half, one, quietNaN asmgen.Operand // see rounded
	packed                      asmgen.Vec     // indices of the upper halves in two registers
}

// split selects split order for this kernel.
func (k *kernel) split() {
	k.isSplit = true
	k.upperHalf = k.constant(0xffff0000)
}

// row loads the address of a row that the kernel reads. The kernel may also write a row of FP32.
func (k *kernel) row(name string, e elem) row {
	k.hasFP32 = k.hasFP32 || e == fp32
	if k.isSplit && e == fp32 && !k.avx2 {
		k.even, k.odd = k.indices(k.file.even), k.indices(k.file.odd)
	}
	return row{base: k.Load(name + "_base"), elem: e}
}

// weights loads the address of a row of FP32 weights. If the rows they go with are BF16, they are
// in the order of Split.
func (k *kernel) weights(name string, e elem) row {
	if e == fp32 {
		return k.row(name, fp32)
	}
	return row{base: k.Load(name + "_base"), elem: fp32, isSplit: true}
}

func (k *kernel) indices(at asmgen.Mem) asmgen.Vec {
	v := k.Z()
	k.I("VMOVDQU32", at, v)
	return v
}

// rounding loads the constants for storing BF16 rows. Call it after all calls of row.
func (k *kernel) rounding(e elem) {
	if e == fp32 {
		return
	}
	k.lowest, k.half, k.one = k.constant(1<<16), k.constant(0x7fff), k.constant(1)
	if k.hasFP32 && !k.avx2 {
		// The second operand made quiet if it is a quiet or signaling NaN, and the destination
		// otherwise.
		const fixNaN = 0x22
		k.quietNaN = k.constant(fixNaN)
	}
	if !k.isSplit && !k.avx2 {
		k.packed = k.indices(k.file.packed)
	}
}

// at returns the memory of the body's elements in a row.
func (k *kernel) at(r row) asmgen.Mem { return r.base.At(k.step*int(r.elem)).Index(k.i, int(r.elem)) }

// load reads a pair. Masked elements are zero.
func (k *kernel) load(r row) pair {
	if r.isSplit {
		even, odd := k.splitMem(r)
		return pair{k.op("VMOVUPS", even), k.op("VMOVUPS", odd)}
	}
	return k.loadAt(k.at(r), r.elem)
}

// splitMem returns the memory of the body's elements of even and odd index, in weights in the order
// of Split.
func (k *kernel) splitMem(r row) (even, odd asmgen.Mem) {
	even = k.at(r)
	if k.avx2 && k.copy%2 == 1 {
		even = even.Plus(-32) // after the even ones of the previous copy
	}
	return even, even.Plus(64)
}

func (k *kernel) loadAt(m asmgen.Mem, e elem) pair {
	switch {
	case k.isSplit && e == bf16:
		return k.widened(k.loadNarrow(m))
	case k.isSplit:
		return k.toSplitOrder(pair{k.loadHalf(m, e, 0), k.loadHalf(m, e, 1)})
	case e == bf16 && k.avx2:
		all := k.loadNarrow(m)
		v := pair{k.op("VPMOVZXWD", all.X()), all}
		k.I("VEXTRACTI128", asmgen.Imm(1), all, all.X())
		k.I("VPMOVZXWD", all.X(), all)
		for _, x := range v {
			k.I("VPSLLD", asmgen.Imm(16), x, x)
		}
		return v
	}
	return pair{k.loadHalf(m, e, 0), k.loadHalf(m, e, 1)}
}

// loadNarrow reads the bfloat16 elements of a body into one register.
func (k *kernel) loadNarrow(m asmgen.Mem) asmgen.Vec {
	if k.avx2 {
		return k.loadNarrowAVX2(m)
	}
	all := k.temp()
	k.zeroed(tail, "VMOVDQU16", m, all)
	return all
}

// widened converts bfloat16 to float32 in split order.
func (k *kernel) widened(all asmgen.Vec) pair {
	even := k.op("VPSLLD", asmgen.Imm(16), all)
	k.I(k.vexOr("VPAND", "VPANDD"), k.upperHalf, all, all)
	return pair{even, all}
}

// vexOr returns the name of an instruction in AVX2 or in AVX-512.
func (k *kernel) vexOr(avx2, avx512 string) string {
	if k.avx2 {
		return avx2
	}
	return avx512
}

// toSplitOrder converts a pair from natural to split order.
func (k *kernel) toSplitOrder(v pair) pair {
	if !k.avx2 {
		return k.permute(v, k.even, k.odd)
	}
	const even, odd, middleSwapped = 0x88, 0xdd, 0xd8
	w := pair{k.op("VSHUFPS", asmgen.Imm(even), v[1], v[0]), v[0]}
	k.I("VSHUFPS", asmgen.Imm(odd), v[1], v[0], v[0])
	for _, x := range w {
		k.I("VPERMPD", asmgen.Imm(middleSwapped), x, x)
	}
	return w
}

// permute selects elements of a pair by two sets of indices.
func (k *kernel) permute(v pair, first, second asmgen.Vec) pair {
	w := k.copyOf(v[0])
	k.I("VPERMT2PS", v[1], first, w)
	k.I("VPERMT2PS", v[1], second, v[0])
	return pair{w, v[0]}
}

// loadHalf reads one half of a body's elements in natural order.
func (k *kernel) loadHalf(m asmgen.Mem, e elem, h int) asmgen.Vec {
	v, m := k.temp(), m.Plus(k.width()*int(e)*h)
	if k.avx2 {
		k.loadWideAVX2(m, h, v)
		return v
	}
	if e == fp32 {
		k.zeroed(halves[h], "VMOVUPS", m, v)
		return v
	}
	k.zeroed(halves[h], "VPMOVZXWD", m, v)
	k.I("VPSLLD", asmgen.Imm(16), v, v)
	return v
}

// prefetchNext fetches elements of the row after r in memory, which is often the next row, into the
// second-level cache. A kernel that finds its own row in a cache has time for that. The address may
// be invalid.
func (k *kernel) prefetchNext(r row, length string) func() {
	next := row{base: k.GP(), elem: r.elem}
	n := k.Load(length)
	k.I("LEAQ", r.base.At(0).Index(n, int(r.elem)), next.base)
	k.Free(n)
	return func() {
		for at := 0; at < 2*k.width()*int(r.elem); at += 64 {
			k.I("PREFETCHT1", k.at(next).Plus(at))
		}
	}
}

// store writes a pair, rounded if the row is BF16. It overwrites the registers.
func (k *kernel) store(v pair, r row) {
	switch {
	case r.isSplit:
		even, odd := k.splitMem(r)
		k.I("VMOVUPS", v[0], even)
		k.I("VMOVUPS", v[1], odd)
	case r.elem == bf16:
		k.storeNarrow(k.narrow(v), k.at(r))
	default:
		for h := range 2 {
			k.storeHalf(v[h], k.at(r), h)
		}
	}
}

// stream is store with non-temporal stores, in natural order. The row must begin on a cache line
// boundary.
func (k *kernel) stream(v pair, r row) {
	switch {
	case k.masked:
		k.store(v, r)
		return
	case r.elem == bf16:
		k.I("VMOVNTDQ", k.narrow(v), k.at(r))
		return
	}
	for h := range 2 {
		k.I("VMOVNTPS", v[h], k.at(r).Plus(4*k.width()*h))
	}
}

func (k *kernel) fence() { k.I("SFENCE") }

func (k *kernel) storeHalf(v asmgen.Vec, m asmgen.Mem, h int) {
	m = m.Plus(4 * k.width() * h)
	if k.avx2 {
		k.storeWideAVX2(v, m, h)
		return
	}
	k.merged(halves[h], "VMOVUPS", v, m)
}

// storeNarrow writes the bfloat16 elements of a body.
func (k *kernel) storeNarrow(v asmgen.Vec, m asmgen.Mem) {
	if k.avx2 {
		k.storeNarrowAVX2(v, m)
		return
	}
	k.merged(tail, "VMOVDQU16", v, m)
}

// narrow rounds a pair to bfloat16.
func (k *kernel) narrow(v pair) asmgen.Vec {
	sums := k.halves(func(h int) []asmgen.Vec { return []asmgen.Vec{k.rounded(v[h], isOdd[k.copy%2][h])} })
	x, y := sums[0][0], sums[0][1]
	switch {
	case k.avx2:
		k.packAVX2(x, y)
	case k.isSplit:
		const firstOrBothOthers = 0xf8
		k.I("VPSRLD", asmgen.Imm(16), x, x)
		k.I("VPTERNLOGD", asmgen.Imm(firstOrBothOthers), k.upperHalf, y, x)
	default:
		k.I("VPERMT2W", y, k.packed, x)
	}
	return x
}

// isOdd has the masks for rounded, by copy of the body and by half.
var isOdd = [2][2]asmgen.Mask{{asmgen.K(2), asmgen.K(3)}, {asmgen.K(5), asmgen.K(6)}}

// rounded leaves the nearest bfloat16 of x in the upper half of each element, with ties to even. It
// adds 0x7fff, and one more if bit 16 is set. The carry would turn some NaNs into other numbers.
// Widened bfloat16 is safe, because its lower half is zero.
func (k *kernel) rounded(x asmgen.Vec, isOdd asmgen.Mask) asmgen.Vec {
	if k.avx2 {
		return k.roundedAVX2(x)
	}
	k.I("VPTESTMD", k.lowest, x, isOdd)
	sum := k.op("VPADDD", k.half, x)
	k.I("VPADDD", k.one, sum, isOdd, sum)
	if k.hasFP32 {
		k.I("VFIXUPIMMPS", asmgen.Imm(0), k.quietNaN, x, sum)
	}
	return sum
}
