package main

// How a body's 32 elements of a row, or 16 in AVX2, come into a pair of registers and go back. In
// natural order the registers hold the first and the second half. Where a kernel only stores
// bfloat16, it is cheaper to split them into those of even and odd index, because they lie in the
// lower and upper halves of the double words of a vector of bfloat16. Rounding is done on integers:
// VCVTNEPS2BF16 would flush subnormals.

import "spmoe/tensor/asmgen"

// elem is the element type of a row.
type elem int

const (
	fp32 elem = 4 // bytes
	bf16 elem = 2
)

// forms are the types that most kernels come in: all rows FP32, or those that hold activations
// BF16.
var forms = []elem{fp32, bf16}

// named is the name of a kernel for a type.
func named(name string, e elem) string {
	if e == bf16 {
		return name + "16"
	}
	return name
}

type row struct {
	base    asmgen.Reg
	elem    elem
	isSplit bool // weights that Split has put in order
}

// rowConstants are what loading and storing rows needs, taken by split, row and rounding.
type rowConstants struct {
	isSplit                     bool
	upperHalf                   asmgen.Operand // selects the odd elements
	even, odd                   asmgen.Vec     // indices of the elements in two registers
	seesFP32                    bool
	lowest, half, one, quietNaN asmgen.Operand // see rounded
	packed                      asmgen.Vec     // indices of the upper halves in two registers
}

// split chooses the order for this kernel.
func (k *kernel) split() {
	k.isSplit = true
	k.upperHalf = k.constant(0xffff0000)
}

// row loads the address of a row that the kernel reads and, if FP32, may write.
func (k *kernel) row(name string, e elem) row {
	k.seesFP32 = k.seesFP32 || e == fp32
	if k.isSplit && e == fp32 && !k.avx2 {
		k.even, k.odd = k.indices(k.file.even), k.indices(k.file.odd)
	}
	return row{base: k.Load(name + "_base"), elem: e}
}

// weights loads the address of a row of FP32 weights that go with rows of a type: in the order of
// Split if that is BF16.
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

// rows loads the addresses of rows of one type.
func (k *kernel) rows(e elem, names ...string) []row {
	var rows []row
	for _, n := range names {
		rows = append(rows, k.row(n, e))
	}
	return rows
}

// rounding takes what storing BF16 rows needs, after all rows are known.
func (k *kernel) rounding(e elem) {
	if e == fp32 {
		return
	}
	k.lowest, k.half, k.one = k.constant(1<<16), k.constant(0x7fff), k.constant(1)
	if k.seesFP32 && !k.avx2 {
		const fixNaN = 0x22 // the second operand, quiet, where it is a quiet or signalling NaN; otherwise the destination
		k.quietNaN = k.constant(fixNaN)
	}
	if !k.isSplit && !k.avx2 {
		k.packed = k.indices(k.file.packed)
	}
}

// at is the place of the body's elements in a row.
func (k *kernel) at(r row) asmgen.Mem { return r.base.At(k.step*int(r.elem)).Index(k.i, int(r.elem)) }

// load reads a pair, zero where masked off.
func (k *kernel) load(r row) pair {
	if r.isSplit {
		even, odd := k.inSplit(r)
		return pair{k.op("VMOVUPS", even), k.op("VMOVUPS", odd)}
	}
	return k.loadAt(k.at(r), r.elem)
}

// inSplit is where the body's elements of even and odd index are in weights that Split has put in
// order.
func (k *kernel) inSplit(r row) (even, odd asmgen.Mem) {
	even = k.at(r)
	if k.avx2 && k.copy%2 == 1 {
		even = even.Plus(-32) // behind the even ones of the copy before
	}
	return even, even.Plus(64)
}

func (k *kernel) loadAt(m asmgen.Mem, e elem) pair {
	switch {
	case k.isSplit && e == bf16:
		return k.widened(k.loadNarrow(m))
	case k.isSplit:
		return k.unzipped(pair{k.loadHalf(m, e, 0), k.loadHalf(m, e, 1)})
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

// loadNarrow reads a body's bfloat16 into one register.
func (k *kernel) loadNarrow(m asmgen.Mem) asmgen.Vec {
	if k.avx2 {
		return k.loadNarrowAVX2(m)
	}
	all := k.temp()
	k.zeroed(tail, "VMOVDQU16", m, all)
	return all
}

// widened is bfloat16 as float32, even and odd.
func (k *kernel) widened(all asmgen.Vec) pair {
	even := k.op("VPSLLD", asmgen.Imm(16), all)
	k.I(k.vexOr("VPAND", "VPANDD"), k.upperHalf, all, all)
	return pair{even, all}
}

// vexOr chooses between the names of an instruction in AVX2 and AVX-512.
func (k *kernel) vexOr(avx2, avx512 string) string {
	if k.avx2 {
		return avx2
	}
	return avx512
}

// unzipped is the elements of even and of odd index of a pair in natural order.
func (k *kernel) unzipped(v pair) pair {
	if !k.avx2 {
		return k.permuted(v, k.even, k.odd)
	}
	const even, odd, middleSwapped = 0x88, 0xdd, 0xd8
	w := pair{k.op("VSHUFPS", asmgen.Imm(even), v[1], v[0]), v[0]}
	k.I("VSHUFPS", asmgen.Imm(odd), v[1], v[0], v[0])
	for _, x := range w {
		k.I("VPERMPD", asmgen.Imm(middleSwapped), x, x)
	}
	return w
}

// permuted picks elements of a pair twice.
func (k *kernel) permuted(v pair, first, second asmgen.Vec) pair {
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

// following is what lies behind a row, often the next one. A kernel that finds its row in a cache,
// after another has read it from memory, has time to fetch that.
func (k *kernel) following(r row, length string) row {
	next := row{base: k.GP(), elem: r.elem}
	n := k.Load(length)
	k.I("LEAQ", r.base.At(0).Index(n, int(r.elem)), next.base)
	k.Free(n)
	return next
}

// prefetch fetches the body's elements of a row into the second-level cache; it may lie outside of
// all memory.
func (k *kernel) prefetch(r row) {
	for at := 0; at < 2*k.width()*int(r.elem); at += 64 {
		k.I("PREFETCHT1", k.at(r).Plus(at))
	}
}

// store writes a pair, rounded where the row is BF16; the registers are lost then.
func (k *kernel) store(v pair, r row) {
	switch {
	case r.isSplit:
		even, odd := k.inSplit(r)
		k.I("VMOVUPS", v[0], even)
		k.I("VMOVUPS", v[1], odd)
	case r.elem == bf16:
		k.storeNarrow(k.narrowed(v), k.at(r))
	default:
		for h := range 2 {
			k.storeHalf(v[h], k.at(r), h)
		}
	}
}

// stream is store past the caches, for rows of FP32 on a cache line's boundary.
func (k *kernel) stream(v pair, r row) {
	if k.masked {
		k.store(v, r)
		return
	}
	for h := range 2 {
		k.I("VMOVNTPS", v[h], k.at(r).Plus(4*k.width()*h))
	}
}

func (k *kernel) storeHalf(v asmgen.Vec, m asmgen.Mem, h int) {
	m = m.Plus(4 * k.width() * h)
	if k.avx2 {
		k.storeWideAVX2(v, m, h)
		return
	}
	k.merged(halves[h], "VMOVUPS", v, m)
}

// storeNarrow writes a body's bfloat16.
func (k *kernel) storeNarrow(v asmgen.Vec, m asmgen.Mem) {
	if k.avx2 {
		k.storeNarrowAVX2(v, m)
		return
	}
	k.merged(tail, "VMOVDQU16", v, m)
}

// narrowed is a pair rounded to bfloat16.
func (k *kernel) narrowed(v pair) asmgen.Vec {
	sums := k.both(func(h int) []asmgen.Vec { return []asmgen.Vec{k.rounded(v[h], isOdd[k.copy%2][h])} })
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

// isOdd are masks for rounded, by the copy of the body and half.
var isOdd = [2][2]asmgen.Mask{{asmgen.K(2), asmgen.K(3)}, {asmgen.K(5), asmgen.K(6)}}

// rounded has the nearest bfloat16 of x, the even one of two, in the upper halves of its elements:
// 0x7fff is added, and one more if bit 16 is set. The carry would turn some NaNs into other
// numbers, but none that comes of bfloat16 alone: its lower half is zero.
func (k *kernel) rounded(x asmgen.Vec, isOdd asmgen.Mask) asmgen.Vec {
	if k.avx2 {
		return k.roundedAVX2(x)
	}
	k.I("VPTESTMD", k.lowest, x, isOdd)
	sum := k.op("VPADDD", k.half, x)
	k.I("VPADDD", k.one, sum, isOdd, sum)
	if k.seesFP32 {
		k.I("VFIXUPIMMPS", asmgen.Imm(0), k.quietNaN, x, sum)
	}
	return sum
}
