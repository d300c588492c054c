package main

// How a body's 32 elements of a row come into a pair of registers and go back. In natural order the registers hold the first
// and the second 16. Where a kernel only stores bfloat16, it is cheaper to split them into those of even and odd index, because
// they lie in the lower and upper halves of the double words of a vector of bfloat16. Rounding is done on integers:
// VCVTNEPS2BF16 would flush subnormals.

import "spmoe/tensor/asmgen"

// elem is the element type of a row.
type elem int

const (
	fp32 elem = 4 // bytes
	bf16 elem = 2
)

// forms are the types that most kernels come in: all rows FP32, or those that hold activations BF16.
var forms = []elem{fp32, bf16}

// named is the name of a kernel for a type.
func named(name string, e elem) string {
	if e == bf16 {
		return name + "16"
	}
	return name
}

type row struct {
	base asmgen.Reg
	elem elem
}

// rowConstants are what loading and storing rows needs, taken by split, row and rounding.
type rowConstants struct {
	isSplit                     bool
	upperHalf                   asmgen.Vec // selects the odd elements
	even, odd                   asmgen.Vec // indices of the elements in two registers
	seesFP32                    bool
	lowest, half, one, quietNaN asmgen.Vec // see rounded
	packed                      asmgen.Vec // indices of the upper halves in two registers
}

// split chooses the order for this kernel.
func (k *kernel) split() {
	k.isSplit = true
	k.upperHalf = k.word(0xffff0000)
}

// row loads the address of a row that the kernel reads and, if FP32, may write.
func (k *kernel) row(name string, e elem) row {
	k.seesFP32 = k.seesFP32 || e == fp32
	if k.isSplit && e == fp32 {
		k.even, k.odd = k.indices(k.file.even), k.indices(k.file.odd)
	}
	return row{k.Load(name + "_base"), e}
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
	k.lowest, k.half, k.one = k.word(1<<16), k.word(0x7fff), k.word(1)
	if k.seesFP32 {
		const fixNaN = 0x22 // the second operand, quiet, where it is a quiet or signalling NaN; otherwise the destination
		k.quietNaN = k.word(fixNaN)
	}
	if !k.isSplit {
		k.packed = k.indices(k.file.packed)
	}
}

// at is the place of the body's elements in a row.
func (k *kernel) at(r row) asmgen.Mem { return r.base.At(k.step*int(r.elem)).Index(k.i, int(r.elem)) }

// load reads 32 elements, zero where masked off.
func (k *kernel) load(r row) pair { return k.loadAt(k.at(r), r.elem) }

func (k *kernel) loadAt(m asmgen.Mem, e elem) pair {
	switch {
	case k.isSplit && e == bf16:
		all := k.temp()
		k.zeroed(tail, "VMOVDQU16", m, all)
		return k.widened(all)
	case k.isSplit:
		return k.permuted(pair{k.loadHalf(m, e, 0), k.loadHalf(m, e, 1)}, k.even, k.odd)
	}
	return pair{k.loadHalf(m, e, 0), k.loadHalf(m, e, 1)}
}

// widened is 32 bfloat16 as float32, even and odd.
func (k *kernel) widened(all asmgen.Vec) pair {
	even := k.op("VPSLLD", asmgen.Imm(16), all)
	k.I("VPANDD", k.upperHalf, all, all)
	return pair{even, all}
}

// permuted picks elements of a pair twice.
func (k *kernel) permuted(v pair, first, second asmgen.Vec) pair {
	w := k.copyOf(v[0])
	k.I("VPERMT2PS", v[1], first, w)
	k.I("VPERMT2PS", v[1], second, v[0])
	return pair{w, v[0]}
}

// loadHalf reads the first or second 16 of 32 elements in natural order.
func (k *kernel) loadHalf(m asmgen.Mem, e elem, h int) asmgen.Vec {
	v, m := k.temp(), m.Plus(16*int(e)*h)
	if e == fp32 {
		k.zeroed(halves[h], "VMOVUPS", m, v)
		return v
	}
	k.zeroed(halves[h], "VPMOVZXWD", m, v)
	k.I("VPSLLD", asmgen.Imm(16), v, v)
	return v
}

// following is what lies behind a row, often the next one. A kernel that finds its row in a cache, after another has read it
// from memory, has time to fetch that.
func (k *kernel) following(r row, length string) row {
	next := row{k.GP(), r.elem}
	n := k.Load(length)
	k.I("LEAQ", r.base.At(0).Index(n, int(r.elem)), next.base)
	k.Free(n)
	return next
}

// prefetch fetches the body's elements of a row into the second-level cache; it may lie outside of all memory.
func (k *kernel) prefetch(r row) {
	for at := 0; at < lanes*int(r.elem); at += 64 {
		k.I("PREFETCHT1", k.at(r).Plus(at))
	}
}

// store writes 32 elements, rounded where the row is BF16; the registers are lost then.
func (k *kernel) store(v pair, r row) {
	if r.elem == bf16 {
		k.merged(tail, "VMOVDQU16", k.narrowed(v), k.at(r))
		return
	}
	for h := range 2 {
		k.merged(halves[h], "VMOVUPS", v[h], k.at(r).Plus(64*h))
	}
}

// narrowed is 32 elements rounded to bfloat16.
func (k *kernel) narrowed(v pair) asmgen.Vec {
	x, y := k.rounded(v[0]), k.rounded(v[1])
	if k.isSplit {
		const firstOrBothOthers = 0xf8
		k.I("VPSRLD", asmgen.Imm(16), x, x)
		k.I("VPTERNLOGD", asmgen.Imm(firstOrBothOthers), k.upperHalf, y, x)
	} else {
		k.I("VPERMT2W", y, k.packed, x)
	}
	return x
}

// rounded has the nearest bfloat16 of x, the even one of two, in the upper halves of its elements: 0x7fff is added, and one
// more if bit 16 is set. The carry would turn some NaNs into other numbers, but none that comes of bfloat16 alone: its lower
// half is zero.
func (k *kernel) rounded(x asmgen.Vec) asmgen.Vec {
	isOdd := asmgen.K(2)
	k.I("VPTESTMD", k.lowest, x, isOdd)
	sum := k.op("VPADDD", k.half, x)
	k.I("VPADDD", k.one, sum, isOdd, sum)
	if k.seesFP32 {
		k.I("VFIXUPIMMPS", asmgen.Imm(0), k.quietNaN, x, sum)
	}
	return sum
}
